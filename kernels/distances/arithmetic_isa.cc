// Sums of squared differences in tiles of points by points.
#include "distances/arithmetic.h"

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::distances {
namespace {

// Bytes of a panel's part that a tile has, in vectors, and points of the other side: sums stay in registers.
constexpr int kVectors = 2;
constexpr int64_t kRows = kVectorBytes == 64 ? 8 : 4;

template <typename T>
struct Wide {
  static constexpr int64_t kCount = kVectorBytes / static_cast<int64_t>(sizeof(T));
  typedef T Value __attribute__((vector_size(kVectorBytes)));
  typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  static HLO_DISPATCH_INLINE Value Load(const T* from) { return *reinterpret_cast<const Anywhere*>(from); }
  static HLO_DISPATCH_INLINE void Store(T* to, Value value) { *reinterpret_cast<Anywhere*>(to) = value; }
};

template <typename T, int64_t kCount>
HLO_DISPATCH_INLINE void Tile(const T* points, int64_t depth, const T* panel, int64_t count, int64_t columns, bool adds,
                              T* to, int64_t stride) {
  using Lanes = Wide<T>;
  typename Lanes::Value sums[kCount][kVectors];
  for (int64_t r = 0; r < kCount; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = typename Lanes::Value{};
  }
  for (int64_t k = 0; k < count; ++k) {
    typename Lanes::Value others[kVectors];
    for (int v = 0; v < kVectors; ++v) others[v] = Lanes::Load(panel + k * kPanel + v * Lanes::kCount);
    for (int64_t r = 0; r < kCount; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        const typename Lanes::Value difference = points[r * depth + k] - others[v];
        sums[r][v] += difference * difference;
      }
    }
  }
  for (int64_t r = 0; r < kCount; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t first = v * Lanes::kCount;
      T* const place = to + r * stride + first;
      if (first + Lanes::kCount <= columns) {
        Lanes::Store(place, adds ? sums[r][v] + Lanes::Load(place) : sums[r][v]);
        continue;
      }
      for (int64_t c = 0; first + c < columns && c < Lanes::kCount; ++c) {
        place[c] = adds ? place[c] + sums[r][v][c] : sums[r][v][c];
      }
    }
  }
}

template <typename T>
void Sums(const void* points, int64_t depth, int64_t rows, const void* panel, int64_t count, int64_t columns, bool adds,
          void* to, int64_t stride) {
  constexpr int64_t kColumns = kVectors * Wide<T>::kCount;
  for (int64_t column = 0; column < columns; column += kColumns) {
    const T* const others = static_cast<const T*>(panel) + column;
    const int64_t here = columns - column;
    int64_t row = 0;
    const auto from = [&] { return static_cast<const T*>(points) + row * depth; };
    const auto place = [&] { return static_cast<T*>(to) + row * stride + column; };
    for (; row + kRows <= rows; row += kRows) Tile<T, kRows>(from(), depth, others, count, here, adds, place(), stride);
    for (; row < rows; ++row) Tile<T, 1>(from(), depth, others, count, here, adds, place(), stride);
  }
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, Sums<float>, Sums<double>};
}

}  // namespace hlo_dispatch::distances
