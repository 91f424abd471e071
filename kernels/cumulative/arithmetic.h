// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_CUMULATIVE_ARITHMETIC_H_
#define HLO_DISPATCH_CUMULATIVE_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::cumulative {

enum Operation { kAdd, kMultiply, kMaximum, kMinimum, kLogAddExp, kOperations };
// Integers wrap around, so that sums and products of unsigned ones have the same bits.
enum Type { kF32, kF64, kS32, kS64, kTypes };

// What combines all elements of a line up to each of them, and including it.
struct Loops {
  // `lines` lines of `count` elements each, behind one another; `is_reversed`: each from its end.
  void (*lines)(const void* from, int64_t lines, int64_t count, bool is_reversed, void* to);
  // Lines side by side: `columns` of them, `rows` elements each, `distance` elements apart, which may be negative.
  void (*columns)(const void* from, int64_t rows, int64_t columns, int64_t distance, void* to);
  // A piece of one line: `carry` is what the elements before it give, then what they give with this piece's; null `to`:
  // the carry alone. Null: a line cannot be divided into pieces.
  void (*piece)(const void* from, int64_t count, bool is_reversed, void* carry, void* to);
  // Of the carry ahead of a line, and of two pieces behind one another, the second one's without the first.
  void (*start)(void* carry);
  void (*merge)(void* carry, const void* following);
};
// Of a carry, for any type.
inline constexpr int64_t kCarryBytes = 16;

struct Arithmetic {
  const char* name;
  // Null functions: there is no such operation of that type.
  Loops loops[kOperations][kTypes];
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::cumulative

#endif  // HLO_DISPATCH_CUMULATIVE_ARITHMETIC_H_
