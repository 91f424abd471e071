// Plans of matrix products, for kernels that contain one.
#ifndef HLO_DISPATCH_ONEDNN_MATMUL_H_
#define HLO_DISPATCH_ONEDNN_MATMUL_H_

#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

// The product of these operands, with weights in the format that they ask for.
CallPlan PlanMatmul(CallOperands operands);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_MATMUL_H_
