// Sums of products over the rows of an image, and over channels side by side.
#include "convolution/arithmetic.h"

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::convolution {
namespace {

template <typename T>
struct Typed {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  static constexpr int kCount = kVectorBytes / static_cast<int>(sizeof(T));

  static HLO_DISPATCH_INLINE Vector Read(const T* from) { return *reinterpret_cast<const Anywhere*>(from); }
  static HLO_DISPATCH_INLINE void Write(T* to, Vector value) { *reinterpret_cast<Anywhere*>(to) = value; }
};

constexpr int kWideVectors = kVectorBytes == 64 ? 4 : 2;

template <typename T, int kResults, int kVectors>
void AddRows(const RowTile<T>& tile) {
  using Of = Typed<T>;
  constexpr int kWidth = kVectors * Of::kCount;
  typename Of::Vector sums[kResults][kVectors];
  for (int r = 0; r < kResults; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Of::Read(tile.sums + r * kWidth + v * Of::kCount);
  }
  for (int64_t t = 0; t < tile.count; ++t) {
    const T* const row = tile.terms[t].row + tile.first;
    const T* weights[kResults];
    for (int r = 0; r < kResults; ++r) weights[r] = tile.terms[t].weights + tile.shift + r * tile.distance;
    for (int64_t k = 0; k < tile.window; ++k) {
      const T* const from = row + tile.places[k];
      typename Of::Vector values[kVectors];
      for (int v = 0; v < kVectors; ++v) values[v] = Of::Read(from + v * Of::kCount);
      for (int r = 0; r < kResults; ++r) {
        const T weight = weights[r][k];
        for (int v = 0; v < kVectors; ++v) sums[r][v] += values[v] * weight;
      }
    }
  }
  for (int r = 0; r < kResults; ++r) {
    for (int v = 0; v < kVectors; ++v) Of::Write(tile.sums + r * kWidth + v * Of::kCount, sums[r][v]);
  }
}

template <typename T>
void AddRowsOfAny(const RowTile<T>& tile) {
  const bool is_wide = tile.width > Typed<T>::kCount;
  if (tile.sharing == kSharing) {
    (is_wide ? AddRows<T, kSharing, kWideVectors> : AddRows<T, kSharing, 1>)(tile);
  } else {
    (is_wide ? AddRows<T, 1, kWideVectors> : AddRows<T, 1, 1>)(tile);
  }
}

template <typename T, int kPositions>
HLO_DISPATCH_INLINE void MultiplyVectors(const T* const* from, const T* const* weights, int64_t count, int64_t first,
                                         int64_t from_step, int64_t to_step, int64_t channels, T* to) {
  using Of = Typed<T>;
  const auto multiplied = [&](int64_t c) {
    typename Of::Vector sums[kPositions] = {};
    for (int64_t t = 0; t < count; ++t) {
      const typename Of::Vector weight = Of::Read(weights[t] + c);
      const T* source = from[t] + first * from_step + c;
      for (int p = 0; p < kPositions; ++p) sums[p] += Of::Read(source + p * from_step) * weight;
    }
    for (int p = 0; p < kPositions; ++p) Of::Write(to + (first + p) * to_step + c, sums[p]);
  };
  int64_t c = 0;
  for (; c + Of::kCount <= channels; c += Of::kCount) multiplied(c);
  if (c == channels) return;
  if (channels >= Of::kCount) {
    multiplied(channels - Of::kCount);  // overlaps the one before it, and writes the same
    return;
  }
  for (; c < channels; ++c) {
    for (int p = 0; p < kPositions; ++p) {
      T sum = 0;
      for (int64_t t = 0; t < count; ++t) sum += from[t][(first + p) * from_step + c] * weights[t][c];
      to[(first + p) * to_step + c] = sum;
    }
  }
}

template <typename T>
void MultiplyChannels(const T* const* from, const T* const* weights, int64_t count, int64_t positions,
                      int64_t from_step, int64_t to_step, int64_t channels, T* to) {
  constexpr int kTogether = 4;
  int64_t p = 0;
  for (; p + kTogether <= positions; p += kTogether) {
    MultiplyVectors<T, kTogether>(from, weights, count, p, from_step, to_step, channels, to);
  }
  for (; p < positions; ++p) MultiplyVectors<T, 1>(from, weights, count, p, from_step, to_step, channels, to);
}

template <typename T>
constexpr Loops<T> LoopsOf() {
  return {Typed<T>::kCount, kWideVectors * Typed<T>::kCount, AddRowsOfAny<T>, MultiplyChannels<T>};
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, LoopsOf<float>(), LoopsOf<double>()};
}

}  // namespace hlo_dispatch::convolution
