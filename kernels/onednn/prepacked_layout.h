// Weights that were packed once by onednn.pack, in the layout that a primitive wants.
#ifndef HLO_DISPATCH_ONEDNN_PREPACKED_LAYOUT_H_
#define HLO_DISPATCH_ONEDNN_PREPACKED_LAYOUT_H_

#include "common/prepacked_weights.h"
#include "onednn/memory.h"

namespace hlo_dispatch::onednn {

struct PackedForm : PackedWeights {
  bool turned = false;  // whether packing turns the spatial dimensions, which the layout's words say, too

  // How `weights` lie in the layout that a primitive asks for. Nothing to pack where it is the weights' own one, or one
  // for which we have no words.
  static PackedForm Of(const Tensor& weights, const MemoryDescriptor* wanted, bool turned);
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_PREPACKED_LAYOUT_H_
