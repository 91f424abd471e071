// The arithmetic of product.cc in integers, once for each instruction set (common/vectors.h): a source rounded to eight
// bits, times integer weights.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_ARITHMETIC_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::quantized_matmul {

// Numbers of the source that a lane multiplies in one step.
inline constexpr int64_t kNumbersPerStep = 4;

// Rows of a source, rounded to eight bits in groups that have one scale each: x ~ numbers * scales. Rows lie in blocks,
// in the order in which they are multiplied.
struct RoundedRows {
  int64_t depth;    // numbers of a row
  int64_t group;    // numbers with one scale; divides the depth
  int64_t groups;   // of a row
  int64_t steps;    // of a group
  int8_t* numbers;  // (blocks, groups, steps, rows of a block, kNumbersPerStep), zeros behind the last one of a group
  float* scales;    // (blocks, groups, rows of a block)
  int32_t* sums;    // of the numbers of a group, likewise
};

// A panel of the result's columns, as Panel has it (arithmetic.h), times rounded rows.
struct IntegerPanel {
  const RoundedRows* source;
  int64_t first_row, rows;  // the first one is the first one of a block
  const uint8_t* weights;   // of s8, or two of s4 in a byte
  int64_t weights_stride;
  const float* scales;  // null: there are none
  int64_t scales_row_stride, scales_column_stride;
  int64_t scales_group;  // rows of weights with one scale for each column, a multiple of the source's group
  int64_t columns;
  float* sums;
  int64_t sums_stride;
  uint8_t* scratch;
};

// For row-major, for column-major and for prepacked weights (packed_layout.h), of which `weights` are those of the
// first column; null where weights are not prepacked.
struct IntegerLoops {
  void (*contiguous_columns)(const IntegerPanel& panel);
  void (*contiguous_rows)(const IntegerPanel& panel);
  void (*packed)(const IntegerPanel& panel);
};

// Rows of a source as numbers of 32 bits in groups that have one scale each, split into four of eight bits.
inline constexpr int kDigits = 4;
struct SplitRows {
  int64_t depth;   // numbers of a row
  int64_t group;   // numbers with one scale, a multiple of two steps; the last group may be smaller
  int64_t groups;  // of a row
  int64_t stride;  // from digit to digit: the depth, a multiple of two steps, and a vector
  int8_t* digits;  // (rows, kDigits, stride), zeros behind the last number
  float* scales;   // (rows, groups)
  int32_t* sums;   // of the digits of a group, (rows, groups, kDigits)
};

// A panel of prepacked weights (packed_layout.h) times such rows.
struct PackedPanel {
  const SplitRows* source;
  int64_t rows;
  const uint8_t* weights;
  const float* scales;  // null: there are none
  int64_t scales_row_stride, scales_column_stride;
  int64_t scales_group;  // rows of weights with one scale for each column, a multiple of the source's group
  int64_t columns;       // a panel's at most
  float* sums;
  int64_t sums_stride;
  float* scratch;  // a panel's scales
};

// Null where there is no such arithmetic.
struct SplitProducts {
  // Splits a row of f32; false where that is not as exact as f32 is.
  bool (*split)(const float* source, int64_t row, const SplitRows& rows);
  void (*s4)(const PackedPanel& panel);
  void (*s8)(const PackedPanel& panel);
  void (*scaled_s4)(const PackedPanel& panel);
  void (*scaled_s8)(const PackedPanel& panel);
};

struct IntegerArithmetic {
  const char* name;
  int64_t rows;     // of a block of the source
  int64_t columns;  // of a panel at most
  // Bytes of working memory for a panel.
  int64_t (*scratch)(const RoundedRows& source);
  // Rounds a block of so many rows of f32.
  void (*round)(const float* source, int64_t source_stride, int64_t rows, int64_t block, const RoundedRows& rounded);
  IntegerLoops s4, s8, scaled_s4, scaled_s8;
  SplitProducts split_products;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const IntegerArithmetic kIntegerArithmetic;)

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_ARITHMETIC_H_
