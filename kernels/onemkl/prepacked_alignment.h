// Alignment of what cblas_sgemm_pack writes: its parts begin at addresses rounded up to a page or to a huge page,
// depending on the processor and on the product; only the written bytes show which.
#ifndef HLO_DISPATCH_ONEMKL_PREPACKED_ALIGNMENT_H_
#define HLO_DISPATCH_ONEMKL_PREPACKED_ALIGNMENT_H_

#include <cstdint>

#include "common/provider.h"
#include "onemkl/gemm_functions.h"

namespace hlo_dispatch::onemkl {

inline constexpr int64_t kPage = 4096;
inline constexpr int64_t kLargePage = 2 << 20;

// kPage or kLargePage: the alignment at which the packed bytes are position-independent. Found by packing to several
// addresses, once in a process for each kind of product. Throws Failure(kUnsupported) where neither is enough.
int64_t PrepackedAlignment(const Provider& provider, const GemmFunctions& functions, int rows, int columns, int depth);

}  // namespace hlo_dispatch::onemkl

#endif  // HLO_DISPATCH_ONEMKL_PREPACKED_ALIGNMENT_H_
