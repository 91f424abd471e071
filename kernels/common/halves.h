// Numbers in f32, whatever they are in memory, and back.
#ifndef HLO_DISPATCH_COMMON_HALVES_H_
#define HLO_DISPATCH_COMMON_HALVES_H_

#include <cstdint>
#include <vector>

#include "common/element_type.h"
#include "common/strided_array.h"

namespace hlo_dispatch {

// The number at a place, counted in elements.
float WidenedNumber(const void* from, ElementType type, int64_t place);
// Rounded to nearest, ties to even; NaN stays one.
void StoreNarrowed(float value, ElementType type, void* to, int64_t place);

// The same of `count` numbers from a place on, `stride` apart in memory and side by side in f32.
void WidenNumbers(const void* from, ElementType type, int64_t place, int64_t stride, int64_t count, float* to);
void NarrowNumbers(const float* from, int64_t count, ElementType type, void* to, int64_t place, int64_t stride);

// The elements of an operand, in the places that its strides say.
class WidenedValues {
 public:
  WidenedValues(const StridedArray& array, const void* buffer);
  const float* begin() const { return begin_; }

 private:
  std::vector<float> copy_;  // empty where they are f32 already
  const float* begin_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_HALVES_H_
