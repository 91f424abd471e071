// Products of a few rows with one panel, sums in registers: a part of arithmetic_isa.cc.
#ifndef HLO_DISPATCH_ATTENTION_PRODUCTS_H_
#define HLO_DISPATCH_ATTENTION_PRODUCTS_H_

#include "attention/arithmetic.h"
#include "common/vectors.h"

namespace hlo_dispatch::attention {
namespace {

// How many rows a panel of so many vectors is multiplied with at once: with six of the widest one 24 of the 32
// registers of AVX-512 hold sums, or 12 of the 16 of AVX2.
#if defined(__AVX512F__)
constexpr int kMaxVectors = 4;
constexpr int kMaxRows[kMaxVectors] = {8, 12, 8, 6};
#elif defined(__AVX2__)
constexpr int kMaxVectors = 2;
constexpr int kMaxRows[kMaxVectors] = {8, 6};
#else
constexpr int kMaxVectors = 2;
constexpr int kMaxRows[kMaxVectors] = {8, 4};
#endif

struct Numbers {
  static constexpr int64_t kBytes = 4;  // of a unit
  static HLO_DISPATCH_INLINE Vector Panel(const char* from) { return Load(reinterpret_cast<const float*>(from)); }
  static HLO_DISPATCH_INLINE Vector Add(Vector sum, float a, Vector b) { return sum + a * b; }
};

struct Halves {
  static constexpr int64_t kBytes = 2;
  static HLO_DISPATCH_INLINE Vector Panel(const char* from) { return LoadBf16(from); }
  static HLO_DISPATCH_INLINE Vector Add(Vector sum, float a, Vector b) { return sum + a * b; }
};

// Two neighbours in bf16 each, where the processor adds up their products.
#if defined(__AVX512BF16__)
struct Pairs {
  static constexpr bool kExist = true;
  static constexpr int64_t kBytes = 4;  // of two
  static HLO_DISPATCH_INLINE Vector Panel(const char* from) { return Load(reinterpret_cast<const float*>(from)); }
  static HLO_DISPATCH_INLINE Vector Add(Vector sum, float a, Vector b) {
    int32_t both;
    __builtin_memcpy(&both, &a, sizeof(both));
    return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                     reinterpret_cast<__m512bh>(_mm512_set1_epi32(both)),
                                                     reinterpret_cast<__m512bh>(b)));
  }
  static HLO_DISPATCH_INLINE void StoreHalves(char* to, Vector value) {
    const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
    __builtin_memcpy(to, &halves, sizeof(halves));
  }
  static HLO_DISPATCH_INLINE void StoreFirstHalves(char* to, Vector value, int64_t count) {
    const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << count) - 1), reinterpret_cast<__m256i>(halves));
  }
};
#else
struct Pairs {
  static constexpr bool kExist = false;
  static constexpr int64_t kBytes = 4;
  static Vector Panel(const char*) { return Vector{}; }
  static Vector Add(Vector sum, float, Vector) { return sum; }
  static void StoreHalves(char*, Vector) {}
  static void StoreFirstHalves(char*, Vector, int64_t) {}
};
#endif

// Rows between what is read and what is fetched from memory for later, where rows lie apart and no prefetcher of the
// processor's follows them: so many lines of the cache can be on their way at once.
constexpr int64_t kRowsAhead = 16;
constexpr int64_t kLineBytes = 64;

// One row of b, into the second-level cache: rows that lie a power of two apart would put each other out of the first.
HLO_DISPATCH_INLINE void FetchRow(const char* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(row + i, /*rw=*/0, /*locality=*/2);
}

struct Factors {
  const float* a;
  int64_t a_stride;
  const char* b;
  int64_t b_bytes;
  float* c;
  int64_t c_stride;
  int64_t depth;
  int64_t ahead = 0;  // bytes of b; 0: nothing is fetched
};

// c = scale * a · b, or c = factors[row] * c + a · b where there are factors: each product is summed up by itself,
// since one sum over all keys would lose more of it with every key.
template <typename Unit, int rows, int vectors>
void Tile(const Factors& with, float scale, const float* factors) {
  Vector sums[rows][vectors] = {};
  const float* a = with.a;
  const char* b = with.b;
  const int64_t a_stride = with.a_stride, b_bytes = with.b_bytes;
  for (int64_t k = 0; k < with.depth; ++k) {
    if (with.ahead != 0) FetchRow(b + with.ahead, vectors * kLanes * Unit::kBytes);
    Vector panel[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) panel[v] = Unit::Panel(b + v * kLanes * Unit::kBytes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const float factor = *reinterpret_cast<const AnyFloat*>(a + r * a_stride);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = Unit::Add(sums[r][v], factor, panel[v]);
    }
    ++a;
    b += b_bytes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* to = with.c + r * with.c_stride + v * kLanes;
      Store(to, factors == nullptr ? sums[r][v] * scale : Load(to) * factors[r] + sums[r][v]);
    }
  }
}

template <typename Unit, int vectors, int rows = kMaxRows[vectors - 1]>
void TileOf(int64_t count, const Factors& with, float scale, const float* factors) {
  if constexpr (rows > 1) {
    if (count < rows) return TileOf<Unit, vectors, rows - 1>(count, with, scale, factors);
  }
  Tile<Unit, rows, vectors>(with, scale, factors);
}

template <typename Unit, int vectors>
void Tiles(Factors with, int64_t rows, float scale, const float* factors) {
  // As even as possible: a tile of one row alone would wait for its sums.
  for (int64_t left = (rows + kMaxRows[vectors - 1] - 1) / kMaxRows[vectors - 1]; left > 0; --left) {
    const int64_t count = (rows + left - 1) / left;
    TileOf<Unit, vectors>(count, with, scale, factors);
    with.a += count * with.a_stride;
    with.c += count * with.c_stride;
    if (factors != nullptr) factors += count;
    rows -= count;
  }
}

template <typename Unit, int most = kMaxVectors>
void Multiply(int64_t vectors, const Factors& with, int64_t rows, float scale, const float* factors) {
  if constexpr (most > 1) {
    if (vectors < most) return Multiply<Unit, most - 1>(vectors, with, rows, scale, factors);
  }
  Tiles<Unit, most>(with, rows, scale, factors);
}

void Scores(bool pairs, const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t vectors, float* c,
            int64_t c_stride, int64_t rows, int64_t depth, float scale) {
  const Factors with{a, a_stride, reinterpret_cast<const char*>(b), 4 * b_stride, c, c_stride, depth};
  if constexpr (Pairs::kExist) {
    if (pairs) return Multiply<Pairs>(vectors, with, rows, scale, nullptr);
  }
  Multiply<Numbers>(vectors, with, rows, scale, nullptr);
}

void Accumulate(Units units, const float* a, int64_t a_stride, const char* b, int64_t b_bytes, int64_t vectors,
                float* c, int64_t c_stride, int64_t rows, int64_t depth, const float* factors) {
  Factors with{a, a_stride, b, b_bytes, c, c_stride, depth};
  if constexpr (Pairs::kExist) {
    if (units == Units::kPairs) return Multiply<Pairs>(vectors, with, rows, 1.0f, factors);
  }
  // Panels that were packed lie in the cache.
  if (b_bytes > vectors * kLanes * (units == Units::kBF16 ? 2 : 4)) with.ahead = kRowsAhead * b_bytes;
  if (units == Units::kBF16) return Multiply<Halves>(vectors, with, rows, 1.0f, factors);
  Multiply<Numbers>(vectors, with, rows, 1.0f, factors);
}

HLO_DISPATCH_INLINE float OneOf(Numbers, const char* at) { return *reinterpret_cast<const AnyFloat*>(at); }
HLO_DISPATCH_INLINE float OneOf(Halves, const char* at) { return FromBf16(*reinterpret_cast<const AnyHalf*>(at)); }

// One row with some others, all along memory.
template <typename Unit, int keys>
HLO_DISPATCH_INLINE void DotsOf(const float* a, const char* b, int64_t b_bytes, float* c, int64_t depth, float scale) {
  Vector sums[keys] = {};
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    const Vector row = Load(a + k);
#pragma GCC unroll 4
    for (int j = 0; j < keys; ++j) sums[j] += row * Unit::Panel(b + j * b_bytes + k * Unit::kBytes);
  }
#pragma GCC unroll 4
  for (int j = 0; j < keys; ++j) {
    float total = Total(sums[j]);
    for (int64_t rest = k; rest < depth; ++rest) {
      total += *reinterpret_cast<const AnyFloat*>(a + rest) * OneOf(Unit{}, b + j * b_bytes + rest * Unit::kBytes);
    }
    c[j] = total * scale;
  }
}

template <typename Unit>
void DotsOfAll(const Factors& with, int64_t rows, int64_t keys, float scale) {
  const int64_t bytes = with.depth * Unit::kBytes;
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
    if (with.b_bytes > bytes) {
      for (int64_t i = 0; i < 4; ++i) FetchRow(with.b + (j + kRowsAhead + i) * with.b_bytes, bytes);
    }
    for (int64_t r = 0; r < rows; ++r) {
      DotsOf<Unit, 4>(with.a + r * with.a_stride, with.b + j * with.b_bytes, with.b_bytes,
                      with.c + r * with.c_stride + j, with.depth, scale);
    }
  }
  for (; j < keys; ++j) {
    for (int64_t r = 0; r < rows; ++r) {
      DotsOf<Unit, 1>(with.a + r * with.a_stride, with.b + j * with.b_bytes, with.b_bytes,
                      with.c + r * with.c_stride + j, with.depth, scale);
    }
  }
}

void Dots(Units units, const float* a, int64_t a_stride, const char* b, int64_t b_bytes, float* c, int64_t c_stride,
          int64_t rows, int64_t keys, int64_t depth, float scale) {
  const Factors with{a, a_stride, b, b_bytes, c, c_stride, depth};
  if (units == Units::kBF16) return DotsOfAll<Halves>(with, rows, keys, scale);
  DotsOfAll<Numbers>(with, rows, keys, scale);
}

}  // namespace
}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_PRODUCTS_H_
