// Copy of a tensor with reversed spatial dimensions. oneDNN's memory descriptors have no negative strides, and weights
// are small next to the data, so a plain loop is enough.
#ifndef HLO_DISPATCH_ONEDNN_REVERSE_H_
#define HLO_DISPATCH_ONEDNN_REVERSE_H_

#include <cstddef>

#include "onednn/memory.h"

namespace hlo_dispatch::onednn {

// to[..., k] = from[..., K - 1 - k] for each of the last `count` dimensions; both lie in memory as `tensor` says.
void CopyReversed(const Tensor& tensor, size_t count, const void* from, void* to);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_REVERSE_H_
