#include "common/halves.h"

#include "common/vectors.h"

namespace hlo_dispatch {

float WidenedNumber(const void* from, ElementType type, int64_t place) {
  if (type == ElementType::kF32) return static_cast<const AnyFloat*>(from)[place];
  const uint16_t half = static_cast<const AnyHalf*>(from)[place];
  return type == ElementType::kBF16 ? FromBf16(half) : FromF16(half);
}

void StoreNarrowed(float value, ElementType type, void* to, int64_t place) {
  if (type == ElementType::kF32) {
    static_cast<AnyFloat*>(to)[place] = value;
  } else {
    static_cast<AnyHalf*>(to)[place] = type == ElementType::kBF16 ? ToBf16(value) : ToF16(value);
  }
}

WidenedValues::WidenedValues(const StridedArray& array, const void* buffer) {
  const void* first = array.Begin(const_cast<void*>(buffer));
  if (array.type == ElementType::kF32) {
    begin_ = static_cast<const float*>(first);
    return;
  }
  copy_.resize(static_cast<size_t>(array.Bytes() / ElementBytes(array.type)));
  for (size_t i = 0; i < copy_.size(); ++i) copy_[i] = WidenedNumber(first, array.type, static_cast<int64_t>(i));
  begin_ = copy_.data();
}

}  // namespace hlo_dispatch
