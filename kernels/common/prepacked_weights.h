// Prepacked weights, for calls whose weights_format is packed: their size, and a description of their layout that
// another process compares with the layout of its own call.
#ifndef HLO_DISPATCH_COMMON_PREPACKED_WEIGHTS_H_
#define HLO_DISPATCH_COMMON_PREPACKED_WEIGHTS_H_

#include <cstdint>
#include <string>

#include "common/attributes.h"

namespace hlo_dispatch {

struct PrepackedWeights {
  int64_t bytes = 0;   // 0: nothing to prepack, the weights are read as they are
  std::string layout;  // empty then

  // Throws Failure(kUnavailable) unless attributes packed_bytes and packed_layout are equal to these. `implementation`
  // is what the library would run.
  void Check(const Attributes& attributes, const std::string& implementation) const;
  // Likewise, where there is one of the two.
  void CheckIfDescribed(const Attributes& attributes, const std::string& implementation) const {
    if (attributes.Has("packed_bytes") || attributes.Has("packed_layout")) Check(attributes, implementation);
  }
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PREPACKED_WEIGHTS_H_
