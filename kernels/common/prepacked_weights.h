// Weights that were packed once, for calls whose weights_format is packed: how many bytes they are, and in which
// layout, in words that another process can compare with what its own call wants.
#ifndef HLO_DISPATCH_COMMON_PREPACKED_WEIGHTS_H_
#define HLO_DISPATCH_COMMON_PREPACKED_WEIGHTS_H_

#include <cstdint>
#include <string>

#include "common/attributes.h"

namespace hlo_dispatch {

struct PackedWeights {
  int64_t bytes = 0;   // 0: there is nothing to pack, the weights are read as they are
  std::string layout;  // empty then

  // Throws Failure(kUnavailable) unless attributes packed_bytes and packed_layout say this. `implementation` is what
  // the library would run.
  void Check(const Attributes& attributes, const std::string& implementation) const;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PREPACKED_WEIGHTS_H_
