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

void WidenNumbers(const void* from, ElementType type, int64_t place, int64_t stride, int64_t count, float* to) {
  if (type == ElementType::kBF16 && stride == 1) {
    const AnyHalf* halves = static_cast<const AnyHalf*>(from) + place;
    for (int64_t i = 0; i < count; ++i) to[i] = FromBf16(halves[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = WidenedNumber(from, type, place + i * stride);
  }
}

void NarrowNumbers(const float* from, int64_t count, ElementType type, void* to, int64_t place, int64_t stride) {
  if (type == ElementType::kBF16 && stride == 1) {
    AnyHalf* halves = static_cast<AnyHalf*>(to) + place;
    for (int64_t i = 0; i < count; ++i) halves[i] = ToBf16(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) StoreNarrowed(from[i], type, to, place + i * stride);
  }
}

WidenedValues::WidenedValues(const StridedArray& array, const void* buffer) {
  const void* first = array.Begin(const_cast<void*>(buffer));
  if (array.type == ElementType::kF32) {
    begin_ = static_cast<const float*>(first);
    return;
  }
  copy_.resize(static_cast<size_t>(array.Bytes() / ElementBytes(array.type)));
  WidenNumbers(first, array.type, 0, 1, static_cast<int64_t>(copy_.size()), copy_.data());
  begin_ = copy_.data();
}

}  // namespace hlo_dispatch
