// The arithmetic of blocked.cc, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_ATTENTION_ARITHMETIC_H_
#define HLO_DISPATCH_ATTENTION_ARITHMETIC_H_

#include <cstdint>

#include "common/element_type.h"
#include "common/isa.h"

namespace hlo_dispatch::attention {

// Element (r, c) lies at first + r * row_bytes + c * column_bytes.
struct Matrix {
  const char* first;
  ElementType type;
  int64_t row_bytes;
  int64_t column_bytes;
};

// What the second factor of a product consists of: numbers, pairs of bf16 for pairs of the first, or bf16 for numbers.
enum class Units { kF32, kPairs, kBF16 };

// Products are of units of four bytes: a number in f32, or two neighbours in bf16, whose products are added up.
// A panel holds up to `max_vectors` vectors of columns side by side, row after row.
struct Arithmetic {
  const char* name;
  int64_t lanes;  // of a vector, in units
  int64_t max_vectors;
  bool has_pairs;  // whether units may be two bf16

  // c = scale * a · b for rows of a and c, one panel b, `depth` units; strides in units.
  void (*scores)(bool pairs, const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t vectors,
                 float* c, int64_t c_stride, int64_t rows, int64_t depth, float scale);
  // c = factors[row] * c + a · b, likewise; b's rows lie b_bytes apart.
  void (*accumulate)(Units units, const float* a, int64_t a_stride, const char* b, int64_t b_bytes, int64_t vectors,
                     float* c, int64_t c_stride, int64_t rows, int64_t depth, const float* factors);
  // c[row][key] = scale * the product of row `row` of a and row `key` of b: few of a, kF32 or kBF16 in b.
  void (*dots)(Units units, const float* a, int64_t a_stride, const char* b, int64_t b_bytes, float* c,
               int64_t c_stride, int64_t rows, int64_t keys, int64_t depth, float scale);

  // Replaces `count` scores of each row by exp(score - peak), in f32 or, if `pairs`, in bf16 from the row's start on; 0
  // up to whole vectors, which there is room for. peaks[r] becomes the largest of them and of what it was, and
  // sums[r] = factors[r] * sums[r] + theirs.
  void (*weigh)(bool pairs, float* s, int64_t stride, int64_t rows, int64_t count, float* peaks, float* sums,
                float* factors);

  // Steps on `count` scores of one row.
  void (*scale)(float* s, int64_t count, float by);
  void (*cap)(float* s, int64_t count, float cap);
  void (*add)(float* s, int64_t count, Matrix row);
  void (*select)(float* s, int64_t count, Matrix row, float otherwise);

  // Copies rows x columns in f32 or, if `pairs`, in bf16 as it is; `to_bytes` apart, 0 up to that.
  void (*fetch)(bool pairs, Matrix from, int64_t rows, int64_t columns, char* to, int64_t to_bytes);
  // to[k * width + r] = unit k of row r: columns of a panel; 0 for rows up to width.
  void (*pack_columns)(const char* from, int64_t from_bytes, int64_t rows, int64_t units, float* to, int64_t width);
  // to[r * width + c] = element (r, c) in f32 or, if `pairs`, elements (2r, c) and (2r + 1, c); 0 beyond.
  void (*pack_rows)(bool pairs, const char* from, int64_t from_bytes, int64_t rows, int64_t columns, float* to,
                    int64_t width);
  // to[c] = from[c] * by in a type; there are whole vectors to read.
  void (*put)(const float* from, int64_t columns, float by, char* to, ElementType type, int64_t column_bytes);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_ARITHMETIC_H_
