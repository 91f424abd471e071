// Products of a rounded source with integer weights, tile by tile. A part of integer_arithmetic_isa.cc.
//
// One step multiplies four numbers of a row with four rows of a tile, and adds them to 32-bit sums, which are exact.
// Behind a group of the source the sums are scaled and added in f32. Weights are unsigned there (integer_weights.h):
// the sums begin with what that adds, negative.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_TILES_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_TILES_H_

#include <immintrin.h>

#include <cstdint>

#include "common/vectors.h"
#include "quantized_matmul/integer_source.h"
#include "quantized_matmul/integer_weights.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// The sums of so many rows and a tile are in registers.
#if defined(__AVX512F__)
constexpr int kBlockRows = 12;
#elif defined(__AVXVNNI__)
constexpr int kBlockRows = 6;
#elif defined(__AVX2__)
constexpr int kBlockRows = 4;
#else
constexpr int kBlockRows = 2;
#endif
constexpr int64_t kBlockStepBytes = kBlockRows * kNumbersPerStep;
// Steps that are packed at once, of whole groups: what they take, 32 kB, stays in the first-level cache.
constexpr int64_t kStepsAtOnce = 256;

// sums += numbers · weights, of four bytes in each lane: the weights are unsigned.
#if defined(__AVX512VNNI__)
using Numbers = Bits;
HLO_DISPATCH_INLINE Numbers NumbersOf(Bits bytes) { return bytes; }
HLO_DISPATCH_INLINE Bits MultiplyAdd(Bits sums, Bits weights, Numbers numbers) {
  return reinterpret_cast<Bits>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums), reinterpret_cast<__m512i>(weights),
                                                    reinterpret_cast<__m512i>(numbers)));
}
#elif defined(__AVXVNNI__)
using Numbers = Bits;
HLO_DISPATCH_INLINE Numbers NumbersOf(Bits bytes) { return bytes; }
HLO_DISPATCH_INLINE Bits MultiplyAdd(Bits sums, Bits weights, Numbers numbers) {
  return reinterpret_cast<Bits>(_mm256_dpbusd_avx_epi32(
      reinterpret_cast<__m256i>(sums), reinterpret_cast<__m256i>(weights), reinterpret_cast<__m256i>(numbers)));
}
#else
// As numbers of 16 bits, whose products fit into 32: `vpmaddubsw` would saturate.
typedef int16_t Shorts __attribute__((vector_size(kVectorBytes)));
struct Numbers {
  Shorts even, odd;
};
HLO_DISPATCH_INLINE Numbers NumbersOf(Bits bytes) {
  const Shorts pairs = reinterpret_cast<Shorts>(bytes);
  return {pairs << 8 >> 8, pairs >> 8};
}
HLO_DISPATCH_INLINE Bits SumOfPairs(Shorts a, Shorts b) {
#if defined(__AVX2__)
  return reinterpret_cast<Bits>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<Bits>(_mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}
HLO_DISPATCH_INLINE Bits MultiplyAdd(Bits sums, Bits weights, Numbers numbers) {
  const Shorts pairs = reinterpret_cast<Shorts>(weights);
  return sums + SumOfPairs(pairs & 0xff, numbers.even) + SumOfPairs(pairs >> 8 & 0xff, numbers.odd);
}
#endif

HLO_DISPATCH_INLINE Bits RepeatedStep(const int8_t* numbers) {
  int32_t four;
  __builtin_memcpy(&four, numbers, sizeof(four));
  return four - Bits{};
}

HLO_DISPATCH_INLINE Bits LoadBits(const uint8_t* from) {
  typedef int32_t Unaligned __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  return *reinterpret_cast<const Unaligned*>(from);
}

// What a tile's columns have in common for all rows of the source: groups [first, last) of their weights.
struct PackedTile {
  int64_t first, last;
  const uint8_t* weights;
  const float* scales;  // for each group kTileColumns, where there are scales
};

// Groups that are packed at once.
HLO_DISPATCH_INLINE int64_t GroupsAtOnce(const RoundedRows& source) {
  const int64_t groups = kStepsAtOnce / source.steps;
  return groups < 1 ? 1 : groups < source.groups ? groups : source.groups;
}

int64_t ScratchBytes(const RoundedRows& source) {
  const int64_t groups = GroupsAtOnce(source);
  return groups * (source.steps * kStepBytes + kTileColumns * 4) + kLine;
}

// The scales of a tile, and zeros where it has no columns.
void ReadTileScales(const IntegerPanel& panel, int64_t first, int64_t last, float* scales) {
  for (int64_t group = first; group < last; ++group, scales += kTileColumns) {
    const float* from = panel.scales + group * panel.source->group / panel.scales_group * panel.scales_row_stride;
    for (int64_t i = 0; i < kTileColumns; ++i) scales[i] = i < panel.columns ? from[i * panel.scales_column_stride] : 0;
  }
}

// The sums of kRows rows of a block, over the groups of a tile.
template <int kRows, bool kIsScaled, int32_t kOffset>
void AddProducts(const IntegerPanel& panel, int64_t block, const PackedTile& tile) {
  const RoundedRows& source = *panel.source;
  const int64_t steps = source.steps, first = block * source.groups + tile.first;
  const int8_t* numbers = source.numbers + first * steps * kBlockStepBytes;
  const uint8_t* weights = tile.weights;
  float* const sums = panel.sums + (block * kBlockRows - panel.first_row) * panel.sums_stride;
  float total[kRows][kTileColumns] = {};
  for (int row = 0; row < kRows && tile.first > 0; ++row) {
    for (int64_t i = 0; i < panel.columns; ++i) total[row][i] = sums[row * panel.sums_stride + i];
  }
  for (int64_t group = 0; group < tile.last - tile.first; ++group) {
    const int64_t place = (first + group) * kBlockRows;
    Bits of_group[kRows][kTileVectors];
    for (int row = 0; row < kRows; ++row) {
      const Bits begin = -kOffset * source.sums[place + row] - Bits{};
      for (int i = 0; i < kTileVectors; ++i) of_group[row][i] = begin;
    }
    for (int64_t step = 0; step < steps; ++step) {
      Bits wide[kTileVectors];
      for (int i = 0; i < kTileVectors; ++i) wide[i] = LoadBits(weights + i * kVectorBytes);
      for (int row = 0; row < kRows; ++row) {
        const Numbers repeated = NumbersOf(RepeatedStep(numbers + row * kNumbersPerStep));
        for (int i = 0; i < kTileVectors; ++i) of_group[row][i] = MultiplyAdd(of_group[row][i], wide[i], repeated);
      }
      weights += kStepBytes;
      numbers += kBlockStepBytes;
    }
    for (int row = 0; row < kRows; ++row) {
      const Vector scale = Repeated(source.scales[place + row]);
      for (int i = 0; i < kTileVectors; ++i) {
        Vector factor = scale;
        if constexpr (kIsScaled) factor *= Load(tile.scales + group * kTileColumns + i * kLanes);
        float* const to = total[row] + i * kLanes;
        Store(to, Load(to) + factor * __builtin_convertvector(of_group[row][i], Vector));
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < panel.columns; ++i) sums[row * panel.sums_stride + i] = total[row][i];
  }
}

// Calls it with as many rows as there are, of kRows at most.
template <int kRows, bool kIsScaled, int32_t kOffset>
void AddProductsOfSome(const IntegerPanel& panel, int64_t block, const PackedTile& tile) {
  if constexpr (kRows > 1) {
    if (panel.first_row + panel.rows - block * kBlockRows < kRows) {
      return AddProductsOfSome<kRows - 1, kIsScaled, kOffset>(panel, block, tile);
    }
  }
  AddProducts<kRows, kIsScaled, kOffset>(panel, block, tile);
}

template <WeightsOrder kOrder, bool kIsFourBits, bool kIsScaled>
void MultiplyTile(const IntegerPanel& panel) {
  const RoundedRows& source = *panel.source;
  const int64_t at_once = GroupsAtOnce(source), blocks_end = panel.first_row + panel.rows;
  uint8_t* const weights = FirstLine(panel.scratch);
  auto* const scales = reinterpret_cast<float*>(weights + at_once * source.steps * kStepBytes);
  for (int64_t first = 0; first < source.groups; first += at_once) {
    const int64_t last = source.groups - first < at_once ? source.groups : first + at_once;
    if constexpr (kOrder == WeightsOrder::kPacked) {
      CopyPacked<kIsFourBits>(panel, first, last, weights);
    } else {
      PackTile<kOrder == WeightsOrder::kRows, kIsFourBits>(panel, first, last, weights);
    }
    if constexpr (kIsScaled) ReadTileScales(panel, first, last, scales);
    const PackedTile tile{first, last, weights, scales};
    for (int64_t row = panel.first_row; row < blocks_end; row += kBlockRows) {
      AddProductsOfSome<kBlockRows, kIsScaled, kWeightsOffset<kIsFourBits>>(panel, row / kBlockRows, tile);
    }
  }
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_TILES_H_
