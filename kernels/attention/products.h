// Products of a few rows with one panel, sums in registers: part of a file for one instruction set, which has
// defined before
//
//   struct Pairs: kExist, and Vector Add(Vector sum, float a, Vector b), the products of two bf16 each
//   kMostVectors, kMostRows[]: how many rows a panel of so many vectors is multiplied with at once
#ifndef HLO_DISPATCH_ATTENTION_PRODUCTS_H_
#define HLO_DISPATCH_ATTENTION_PRODUCTS_H_

#include "attention/vectors.h"

namespace hlo_dispatch::attention {
namespace {

struct Numbers {
  static HLO_DISPATCH_INLINE Vector Add(Vector sum, float a, Vector b) { return sum + a * b; }
};

struct Product {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t depth;
};

// c = scale * a · b, or c = factors[row] * c + a · b where there are factors.
template <typename Units, int rows, int vectors>
void Tile(const Product& with, float scale, const float* factors) {
  Vector sums[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = factors == nullptr ? Vector{} : Load(with.c + r * with.c_stride + v * kLanes) * factors[r];
    }
  }
  const float* a = with.a;
  const float* b = with.b;
  const int64_t a_stride = with.a_stride, b_stride = with.b_stride;
  for (int64_t k = 0; k < with.depth; ++k) {
    Vector panel[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) panel[v] = Load(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const float factor = *reinterpret_cast<const AnyFloat*>(a + r * a_stride);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = Units::Add(sums[r][v], factor, panel[v]);
    }
    ++a;
    b += b_stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      Store(with.c + r * with.c_stride + v * kLanes, factors == nullptr ? sums[r][v] * scale : sums[r][v]);
    }
  }
}

template <typename Units, int vectors, int rows = kMostRows[vectors - 1]>
void TileOf(int64_t count, const Product& with, float scale, const float* factors) {
  if constexpr (rows > 1) {
    if (count < rows) return TileOf<Units, vectors, rows - 1>(count, with, scale, factors);
  }
  Tile<Units, rows, vectors>(with, scale, factors);
}

template <typename Units, int vectors>
void Tiles(Product with, int64_t rows, float scale, const float* factors) {
  // As even as possible: a tile of one row alone would wait for its sums.
  for (int64_t left = (rows + kMostRows[vectors - 1] - 1) / kMostRows[vectors - 1]; left > 0; --left) {
    const int64_t count = (rows + left - 1) / left;
    TileOf<Units, vectors>(count, with, scale, factors);
    with.a += count * with.a_stride;
    with.c += count * with.c_stride;
    if (factors != nullptr) factors += count;
    rows -= count;
  }
}

template <typename Units, int most = kMostVectors>
void Multiply(int64_t vectors, const Product& with, int64_t rows, float scale, const float* factors) {
  if constexpr (most > 1) {
    if (vectors < most) return Multiply<Units, most - 1>(vectors, with, rows, scale, factors);
  }
  Tiles<Units, most>(with, rows, scale, factors);
}

void MultiplyUnits(bool pairs, const Product& with, int64_t vectors, int64_t rows, float scale, const float* factors) {
  if constexpr (Pairs::kExist) {
    if (pairs) return Multiply<Pairs>(vectors, with, rows, scale, factors);
  }
  Multiply<Numbers>(vectors, with, rows, scale, factors);
}

void Scores(bool pairs, const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t vectors, float* c,
            int64_t c_stride, int64_t rows, int64_t depth, float scale) {
  MultiplyUnits(pairs, {a, a_stride, b, b_stride, c, c_stride, depth}, vectors, rows, scale, nullptr);
}

void Accumulate(bool pairs, const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t vectors,
                float* c, int64_t c_stride, int64_t rows, int64_t depth, const float* factors) {
  MultiplyUnits(pairs, {a, a_stride, b, b_stride, c, c_stride, depth}, vectors, rows, 1.0f, factors);
}

// One row with some others, all along memory.
template <int keys>
HLO_DISPATCH_INLINE void DotsOf(const float* a, const float* b, int64_t b_stride, float* c, int64_t depth,
                                float scale) {
  Vector sums[keys] = {};
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    const Vector row = Load(a + k);
#pragma GCC unroll 4
    for (int j = 0; j < keys; ++j) sums[j] += row * Load(b + j * b_stride + k);
  }
#pragma GCC unroll 4
  for (int j = 0; j < keys; ++j) {
    float total = Total(sums[j]);
    for (int64_t rest = k; rest < depth; ++rest) {
      total += a[rest] * *reinterpret_cast<const AnyFloat*>(b + j * b_stride + rest);
    }
    c[j] = total * scale;
  }
}

void Dots(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t rows,
          int64_t keys, int64_t depth, float scale) {
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
    for (int64_t r = 0; r < rows; ++r) {
      DotsOf<4>(a + r * a_stride, b + j * b_stride, b_stride, c + r * c_stride + j, depth, scale);
    }
  }
  for (; j < keys; ++j) {
    for (int64_t r = 0; r < rows; ++r) {
      DotsOf<1>(a + r * a_stride, b + j * b_stride, b_stride, c + r * c_stride + j, depth, scale);
    }
  }
}

}  // namespace
}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_PRODUCTS_H_
