// Tiles of products of integers, in 32 bits.
#include <cstdint>

#include "common/vectors.h"
#include "integer_product/arithmetic.h"

namespace hlo_dispatch::integer_product {
namespace {

// Unsigned: sums wrap.
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint32_t AnyWords __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));

// Columns at once, with which a tile's rows fit into registers.
constexpr int kVectors = kVectorBytes == 64 ? 2 : 1;
constexpr int kLanesAtOnce = kVectors * kLanes;
constexpr int kRowsAtOnce = kVectorBytes == 16 ? 3 : 6;

struct OfWords {
  static HLO_DISPATCH_INLINE Words Add(Words sums, Words a, Words b) { return sums + a * b; }
};

struct OfPairs {
  static HLO_DISPATCH_INLINE Words Add(Words sums, Words a, Words b) {
#if defined(__AVX512VNNI__)
    return reinterpret_cast<Words>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sums), reinterpret_cast<__m512i>(a),
                                                       reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return sums +
           reinterpret_cast<Words>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
    return sums + reinterpret_cast<Words>(_mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
  }
};

template <typename Of>
void MultiplyTile(const int32_t* a, int64_t distance, const int32_t* b, int64_t count, int32_t* to) {
  for (int64_t row = 0; row < kRows; row += kRowsAtOnce) {
    for (int64_t column = 0; column < kColumns; column += kLanesAtOnce) {
      Words sums[kRowsAtOnce][kVectors] = {};
      const int32_t* rows[kRowsAtOnce];
      for (int r = 0; r < kRowsAtOnce; ++r) rows[r] = a + (row + r) * distance;
      for (int64_t k = 0; k < count; ++k) {
        Words values[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          values[v] = *reinterpret_cast<const AnyWords*>(b + k * kColumns + column + v * kLanes);
        }
        for (int r = 0; r < kRowsAtOnce; ++r) {
          const Words repeated = static_cast<uint32_t>(rows[r][k]) + Words{};
          for (int v = 0; v < kVectors; ++v) sums[r][v] = Of::Add(sums[r][v], repeated, values[v]);
        }
      }
      for (int r = 0; r < kRowsAtOnce; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          *reinterpret_cast<AnyWords*>(to + (row + r) * kColumns + column + v * kLanes) = sums[r][v];
        }
      }
    }
  }
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, MultiplyTile<OfWords>, MultiplyTile<OfPairs>};
}

}  // namespace hlo_dispatch::integer_product
