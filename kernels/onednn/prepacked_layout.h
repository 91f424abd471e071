// Prepacked weights in a primitive's preferred layout, as onednn.pack writes them.
#ifndef HLO_DISPATCH_ONEDNN_PREPACKED_LAYOUT_H_
#define HLO_DISPATCH_ONEDNN_PREPACKED_LAYOUT_H_

#include "common/prepacked_weights.h"
#include "onednn/memory.h"

namespace hlo_dispatch::onednn {

struct PrepackedLayout : PrepackedWeights {
  bool reversed = false;  // whether prepacking reverses the spatial dimensions; part of `layout`, too

  // The preferred layout of `weights`. Nothing to prepack where it is their own, or one that has no description here.
  static PrepackedLayout Of(const Tensor& weights, const MemoryDescriptor* preferred, bool reversed);
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_PREPACKED_LAYOUT_H_
