// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_SPARSE_ARITHMETIC_H_
#define HLO_DISPATCH_SPARSE_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::sparse {

// Indices of a dimension of so many places.
struct Places {
  const int32_t* indices;
  int64_t stride;  // between those of two entries
  int64_t size;
  bool wraps;  // whether those below 0 count from the end
};

// What an entry is multiplied by whose place in the source is outside.
enum class Outside : int64_t { kNearest = 0, kZero = 1, kNan = 2 };

// Entries of a sparse matrix, and rows of the source and of the result, side by side in memory.
struct Problem {
  const void* values;
  Places rows, columns;
  const void* source;
  int64_t width;
  Outside outside;
  void* result;
};

struct Loops {
  // Adds the entries [first, last) whose rows are in [begin, end) to the result, in their order. With `ascending` they
  // are all in there and in the order of their rows, which are written for the first time, others as zeros.
  void (*add)(const Problem& problem, int64_t first, int64_t last, int64_t begin, int64_t end, bool ascending);
};

struct Arithmetic {
  const char* name;
  Loops f32, f64;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::sparse

#endif  // HLO_DISPATCH_SPARSE_ARITHMETIC_H_
