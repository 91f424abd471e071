// Weights that were packed once (onednn.pack), for calls whose weights_format is packed: how many bytes they are, and
// in which layout, in words that another process can compare with what its own primitive wants.
#ifndef HLO_DISPATCH_ONEDNN_PACKED_FORM_H_
#define HLO_DISPATCH_ONEDNN_PACKED_FORM_H_

#include <cstdint>
#include <string>

#include "common/attributes.h"
#include "onednn/memory.h"

namespace hlo_dispatch::onednn {

struct PackedForm {
  int64_t bytes = 0;    // 0: there is nothing to pack, the primitive reads the weights as they are
  std::string layout;   // empty then
  bool turned = false;  // whether packing turns the spatial dimensions, which the layout's words say, too

  // How `weights` lie in the layout that a primitive asks for. Nothing to pack where it is the weights' own one, or one
  // for which we have no words.
  static PackedForm Of(const Tensor& weights, const MemoryDescriptor* wanted, bool turned);
  // Throws Failure(kUnavailable) unless attributes packed_bytes and packed_layout say this. `implementation` is what
  // the library would run.
  void Check(const Attributes& attributes, const std::string& implementation) const;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_PACKED_FORM_H_
