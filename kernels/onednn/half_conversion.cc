#include "onednn/half_conversion.h"

#include <algorithm>

#include "common/processor.h"
#include "common/rounding.h"
#include "onednn/half_arithmetic.h"

namespace hlo_dispatch::onednn {

namespace {

// Below this one thread has converted before another is awake.
constexpr int64_t kElementsRepayingThreads = 256 * 1024;
constexpr int64_t kElementsAtOnce = 16 * 1024;

const HalfArithmetic& Arithmetic() {
  return ForThisProcessor(plain::kHalfArithmetic, avx2::kHalfArithmetic, avx512::kHalfArithmetic);
}

const char* At(const void* buffer, int64_t element, int64_t bytes) {
  return static_cast<const char*>(buffer) + element * bytes;
}

char* At(void* buffer, int64_t element, int64_t bytes) { return static_cast<char*>(buffer) + element * bytes; }

}  // namespace

HalfConversion::HalfConversion(const StoredHalves& stored) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < stored.array.dims.size(); ++i) {
    if (stored.array.dims[i] == 1) continue;
    axes.push_back({stored.array.dims[i], stored.array.strides[i], stored.widened_strides[i]});
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.number_stride > b.number_stride; });
  for (const Axis& axis : axes) {
    const bool continues = !outer_.empty() && outer_.back().half_stride == axis.size * axis.half_stride &&
                           outer_.back().number_stride == axis.size * axis.number_stride;
    if (continues) {
      outer_.back() = {outer_.back().size * axis.size, axis.half_stride, axis.number_stride};
    } else {
      outer_.push_back(axis);
    }
  }
  if (outer_.empty()) return;
  row_ = outer_.back();
  outer_.pop_back();
  for (const Axis& axis : outer_) rows_ *= axis.size;
}

// Calls convert(half, number, count) for parts of rows: where they begin, and how many elements they have.
template <typename Convert>
void HalfConversion::ForRows(const Parallel& parallel, const Convert& convert) const {
  const int64_t parts = CeilOfRatio(row_.size, kElementsAtOnce), pieces = rows_ * parts;
  const int64_t part = std::min(row_.size, kElementsAtOnce);
  const bool shared = rows_ * row_.size >= kElementsRepayingThreads;
  const int64_t grain = shared ? std::max<int64_t>(1, kElementsAtOnce / part) : pieces;
  parallel.For(pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece % parts * part;
      int64_t half = first * row_.half_stride, number = first, row = piece / parts;
      for (auto axis = outer_.rbegin(); axis != outer_.rend(); ++axis) {
        const int64_t at = row % axis->size;
        half += at * axis->half_stride;
        number += at * axis->number_stride;
        row /= axis->size;
      }
      convert(half, number, std::min(part, row_.size - first));
    }
  });
}

void HalfConversion::Widen(const void* halves, void* numbers, const Parallel& parallel) const {
  const HalfArithmetic& arithmetic = Arithmetic();
  ForRows(parallel, [&](int64_t half, int64_t number, int64_t count) {
    arithmetic.widen(At(halves, half, 2), row_.half_stride, count, At(numbers, number, 4));
  });
}

void HalfConversion::Narrow(const void* numbers, void* halves, const Parallel& parallel) const {
  const HalfArithmetic& arithmetic = Arithmetic();
  ForRows(parallel, [&](int64_t half, int64_t number, int64_t count) {
    arithmetic.narrow(At(numbers, number, 4), row_.half_stride, count, At(halves, half, 2));
  });
}

}  // namespace hlo_dispatch::onednn
