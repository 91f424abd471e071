#include "attention/products.h"
#include "attention/rows.h"

namespace hlo_dispatch::attention::HLO_DISPATCH_ISA {

const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME,
                                kLanes,
                                kMaxVectors,
                                Pairs::kExist,
                                Scores,
                                Accumulate,
                                Dots,
                                Weigh,
                                Scale,
                                Cap,
                                Add,
                                Select,
                                Fetch,
                                PackColumns,
                                PackRows,
                                Put};

}  // namespace hlo_dispatch::attention::HLO_DISPATCH_ISA
