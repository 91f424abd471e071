// Transposed convolutions whose windows do not overlap, as batched matrix products.
//
//   dst[n, o, p * K + k] = sum over i of src[n, i, p] * weights[o, i, k],    0 <= k < K
//
// is for each n and for each p and k but the last ones a product of (last p, i) by (i, (last k, o)). oneDNN's own
// deconvolution has no more columns than channels: of an image's three it fills three lanes of a vector.
#ifndef HLO_DISPATCH_ONEDNN_DISJOINT_WINDOWS_H_
#define HLO_DISPATCH_ONEDNN_DISJOINT_WINDOWS_H_

#include <optional>

#include "onednn/plan.h"
#include "onednn/window.h"

namespace hlo_dispatch::onednn {

// Operands of the product, for a call without groups and epilogue. Nothing where windows overlap or leave gaps, or
// where the last window dimension and the channels do not lie behind one another in the weights and in the result.
std::optional<CallOperands> ProductOfDisjointWindows(const CallOperands& operands, const Window& window);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_DISJOINT_WINDOWS_H_
