// Conversion of a tensor in f16 to a dense one in f32 and back, on XLA's threads: for calls whose types oneDNN has no
// arithmetic in on this processor. oneDNN's own reorders have no f16 there either.
#ifndef HLO_DISPATCH_ONEDNN_HALF_CONVERSION_H_
#define HLO_DISPATCH_ONEDNN_HALF_CONVERSION_H_

#include <cstdint>
#include <vector>

#include "common/parallel.h"
#include "onednn/memory.h"

namespace hlo_dispatch::onednn {

class HalfConversion {
 public:
  explicit HalfConversion(const StoredHalves& stored);

  // From and to the first element of each.
  void Widen(const void* halves, void* numbers, const Parallel& parallel) const;
  void Narrow(const void* numbers, void* halves, const Parallel& parallel) const;

 private:
  struct Axis {
    int64_t size;
    int64_t half_stride, number_stride;  // in elements
  };

  template <typename Convert>
  void ForRows(const Parallel& parallel, const Convert& convert) const;

  std::vector<Axis> outer_;  // slowest first
  Axis row_{1, 1, 1};
  int64_t rows_ = 1;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_HALF_CONVERSION_H_
