// Integer weights as VNNI reads them: unsigned, four rows of a column in a lane. A part of integer_arithmetic_isa.cc.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_WEIGHTS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_WEIGHTS_H_

#include <immintrin.h>

#include <cstdint>

#include "common/vectors.h"
#include "quantized_matmul/integer_arithmetic.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// Columns of a tile: of so many vectors.
#if defined(__AVX2__)
constexpr int kTileVectors = 2;
#else
constexpr int kTileVectors = 4;
#endif
constexpr int64_t kTileColumns = kTileVectors * kLanes;
// Bytes of one step: four rows of a tile.
constexpr int64_t kStepBytes = kTileColumns * kNumbersPerStep;

// Columns and rows of weights that are packed at once.
constexpr int64_t kPackedColumns = 16, kPackedSteps = 4, kPackedRows = kPackedSteps * kNumbersPerStep;
static_assert(kTileColumns % kPackedColumns == 0);
// So many rows of weights ahead of what is packed lie what is fetched; rows are too far apart for the processor to
// guess.
constexpr int64_t kRowsAhead = 32;

// How the weights of a panel lie.
enum class WeightsOrder { kRows, kColumns, kPacked };
// Whether a prepacked panel (packed_layout.h), of four vectors, has whole tiles of these.
constexpr bool kReadsPacked = kVectorBytes == 64;
constexpr int64_t kPackedStepBytes = 4 * kVectorBytes;

// What is added to weights, so that none is negative.
template <bool kIsFourBits>
constexpr int32_t kWeightsOffset = kIsFourBits ? 8 : 128;

template <bool kIsFourBits>
HLO_DISPATCH_INLINE uint8_t UnsignedWeight(const uint8_t* weights, int64_t place) {
  if constexpr (kIsFourBits) {
    return static_cast<uint8_t>((weights[place / 2] >> place % 2 * 4 & 15) ^ 8);
  } else {
    return weights[place] ^ 0x80;
  }
}

// Sixteen that lie side by side; those of four bits from an even place on.
template <bool kIsFourBits>
HLO_DISPATCH_INLINE __m128i SixteenWeights(const uint8_t* weights, int64_t place) {
  if constexpr (kIsFourBits) {
    const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights + place / 2));
    const __m128i low = _mm_set1_epi8(15);
    const __m128i numbers = _mm_unpacklo_epi8(_mm_and_si128(pairs, low), _mm_and_si128(_mm_srli_epi16(pairs, 4), low));
    return _mm_xor_si128(numbers, _mm_set1_epi8(8));
  } else {
    const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + place));
    return _mm_xor_si128(numbers, _mm_set1_epi8(static_cast<char>(0x80)));
  }
}

HLO_DISPATCH_INLINE void StoreBytes(uint8_t* to, __m128i bytes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

// Sixteen rows of sixteen columns: of each step the four rows of all columns.
template <bool kIsFourBits>
HLO_DISPATCH_INLINE void PackRows(const uint8_t* weights, int64_t stride, int64_t place, uint8_t* to) {
  for (int64_t step = 0; step < kPackedSteps; ++step, place += kNumbersPerStep * stride, to += kStepBytes) {
    __m128i rows[kNumbersPerStep];
    for (int i = 0; i < kNumbersPerStep; ++i) rows[i] = SixteenWeights<kIsFourBits>(weights, place + i * stride);
    const __m128i low = _mm_unpacklo_epi8(rows[0], rows[1]), high = _mm_unpackhi_epi8(rows[0], rows[1]);
    const __m128i next_low = _mm_unpacklo_epi8(rows[2], rows[3]), next_high = _mm_unpackhi_epi8(rows[2], rows[3]);
    StoreBytes(to, _mm_unpacklo_epi16(low, next_low));
    StoreBytes(to + 16, _mm_unpackhi_epi16(low, next_low));
    StoreBytes(to + 32, _mm_unpacklo_epi16(high, next_high));
    StoreBytes(to + 48, _mm_unpackhi_epi16(high, next_high));
  }
}

// The same where the rows of a column lie side by side.
template <bool kIsFourBits>
HLO_DISPATCH_INLINE void PackColumns(const uint8_t* weights, int64_t stride, int64_t place, uint8_t* to) {
  for (int64_t column = 0; column < kPackedColumns; column += 4) {
    __m128i columns[4];
    for (int i = 0; i < 4; ++i) columns[i] = SixteenWeights<kIsFourBits>(weights, place + (column + i) * stride);
    const __m128i first = _mm_unpacklo_epi32(columns[0], columns[1]),
                  second = _mm_unpackhi_epi32(columns[0], columns[1]);
    const __m128i third = _mm_unpacklo_epi32(columns[2], columns[3]), last = _mm_unpackhi_epi32(columns[2], columns[3]);
    uint8_t* const at = to + column * kNumbersPerStep;
    StoreBytes(at, _mm_unpacklo_epi64(first, third));
    StoreBytes(at + kStepBytes, _mm_unpackhi_epi64(first, third));
    StoreBytes(at + 2 * kStepBytes, _mm_unpacklo_epi64(second, last));
    StoreBytes(at + 3 * kStepBytes, _mm_unpackhi_epi64(second, last));
  }
}

// `rows` rows of weights from `row` on, sixteen columns at most: as many whole steps as these are in, zeros behind
// them.
template <bool kIsByRow, bool kIsFourBits>
void PackBlock(const IntegerPanel& panel, int64_t row, int64_t rows, int64_t column, uint8_t* to) {
  const int64_t stride = panel.weights_stride, columns = panel.columns - column;
  const int64_t place = kIsByRow ? row * stride + column : column * stride + row;
  if (rows == kPackedRows && columns >= kPackedColumns && (!kIsFourBits || place % 2 == 0)) {
    if constexpr (kIsByRow) {
      PackRows<kIsFourBits>(panel.weights, stride, place, to);
    } else {
      PackColumns<kIsFourBits>(panel.weights, stride, place, to);
    }
    return;
  }
  const int64_t across = kIsByRow ? 1 : stride, down = kIsByRow ? stride : 1;
  for (int64_t k = 0; k < (rows + kNumbersPerStep - 1) / kNumbersPerStep * kNumbersPerStep; ++k) {
    uint8_t* const at = to + k / kNumbersPerStep * kStepBytes + k % kNumbersPerStep;
    for (int64_t i = 0; i < kPackedColumns; ++i) {
      at[i * kNumbersPerStep] =
          k < rows && i < columns ? UnsignedWeight<kIsFourBits>(panel.weights, place + k * down + i * across) : 0;
    }
  }
}

// The weights of groups [first, last) of a tile.
template <bool kIsByRow, bool kIsFourBits>
void PackTile(const IntegerPanel& panel, int64_t first, int64_t last, uint8_t* to) {
  const int64_t group = panel.source->group, steps = panel.source->steps;
  for (int64_t begin = first * group; begin < last * group; begin += group, to += steps * kStepBytes) {
    for (int64_t k = 0; k < group; k += kPackedRows) {
      const int64_t rows = group - k < kPackedRows ? group - k : kPackedRows;
      for (int64_t i = 0; kIsByRow && i < rows && begin + k + i + kRowsAhead < panel.source->depth; ++i) {
        const int64_t place = (begin + k + i + kRowsAhead) * panel.weights_stride;
        __builtin_prefetch(panel.weights + (kIsFourBits ? place / 2 : place), /*rw=*/0, /*locality=*/2);
      }
      for (int64_t column = 0; column < kTileColumns; column += kPackedColumns) {
        uint8_t* const at = to + k / kNumbersPerStep * kStepBytes + column * kNumbersPerStep;
        PackBlock<kIsByRow, kIsFourBits>(panel, begin + k, rows, column, at);
      }
    }
  }
}

// The same of prepacked weights; groups are of whole bytes of them.
template <bool kIsFourBits>
void CopyPacked(const IntegerPanel& panel, int64_t first, int64_t last, uint8_t* to) {
  constexpr int64_t kRowsOfStep = kNumbersPerStep * (kIsFourBits ? 2 : 1);
  typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  const int64_t group = panel.source->group;
  const uint8_t* from = panel.weights + first * group / kRowsOfStep * kPackedStepBytes;
  for (int64_t k = first * group; k < last * group; k += kRowsOfStep, from += kPackedStepBytes) {
    for (int i = 0; i < kTileVectors; ++i, to += kVectorBytes) {
      const Bytes bytes = *reinterpret_cast<const Bytes*>(from + i * kVectorBytes);
      if constexpr (kIsFourBits) {
        *reinterpret_cast<Bytes*>(to) = bytes & 15;
        *reinterpret_cast<Bytes*>(to + kStepBytes) = bytes >> 4;
      } else {
        *reinterpret_cast<Bytes*>(to) = bytes;
      }
    }
    if constexpr (kIsFourBits) to += kStepBytes;
  }
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_WEIGHTS_H_
