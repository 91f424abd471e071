// The arithmetic of product.cc, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_ARITHMETIC_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::quantized_matmul {

// A panel of the result's columns: sums[row][column] = sum over k of source[row][k] * weights[k][column] * scales[k /
// group][column], in f32.
struct Panel {
  const void* source;  // its rows, each of `depth` numbers side by side: f32, or what Tiles say
  int64_t source_stride;
  int64_t rows;
  int64_t depth;
  const void* weights;
  int64_t weights_stride;        // from row to row for row-major weights, else from column to column
  const void* end;               // of the buffer that the weights are in: so far may be read
  uint8_t weights_flip;          // bits of weights of four bits, two in a byte, that are the other way round
  const float* scales;           // null: there are none
  int64_t scales_row_stride;     // from group to group
  int64_t scales_column_stride;  // from column to column; 1 for row-major weights
  int64_t group;                 // rows of weights that have one scale for each column, a multiple of kGroupGrain
  int64_t columns;
  float* sums;  // row-major
  int64_t sums_stride;
  // For row-major weights and more than one row as many numbers, for sums that lie so that all of a few columns are in
  // the cache at once; for column-major ones of four bits as many as the source has, in the order in which weights are
  // widened; of Tiles the widened weights of one tile. Else null.
  float* scratch;
};

// For row-major and for column-major weights: each is loaded once, in memory order, and dequantized in a register.
struct Loops {
  void (*contiguous_columns)(const Panel& panel);
  void (*contiguous_rows)(const Panel& panel);
};

// By what the weights are; integers also with scales of groups.
struct LoopsByType {
  Loops s4, s8, bf16, f32, scaled_s4, scaled_s8;
};

struct Arithmetic {
  const char* name;
  LoopsByType loops;
};

// Loops over one panel of prepacked weights (packed_layout.h); null where tiles are no such panels.
struct PackedLoops {
  void (*s4)(const Panel& panel);
  void (*s8)(const Panel& panel);
  void (*scaled_s4)(const Panel& panel);
  void (*scaled_s8)(const Panel& panel);
};

// Products of many rows: integer weights are widened in tiles of `columns`, `depth` rows of weights at a time, into
// scratch memory that stays in the cache while all rows of the source are multiplied with them.
struct Tiles {
  const char* name;
  bool multiplies_bf16;  // the source is bf16, and so are the weights that are multiplied; else both are f32
  int64_t columns;
  int64_t scratch;    // numbers
  LoopsByType loops;  // of one tile's columns at most, and of integers only
  PackedLoops packed;
};

// No vector and no step of a loop reaches from one group into the next.
constexpr int64_t kGroupGrain = 16;

struct Bf16 {
  uint16_t bits;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)
HLO_DISPATCH_FOR_EACH_ISA(extern const Tiles kTiles;)

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_ARITHMETIC_H_
