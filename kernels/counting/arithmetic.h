// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_COUNTING_ARITHMETIC_H_
#define HLO_DISPATCH_COUNTING_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::counting {

// A sorted array, and for each of some intervals of equal length, from its smallest number on, how many of its numbers
// lie below: where a number is searched.
struct Intervals {
  const void* sorted;     // behind it as many NaN as a search looks at
  const int32_t* starts;  // for each interval
  double lowest, scale;   // a number's interval is (number - lowest) * scale, both rounded to the array's type
  int32_t last;           // the last interval
  int32_t step;           // of the search in an interval the first one, a power of two, or 0
  int64_t of_nan;         // where NaN belongs
};

// As XLA's loop searches in an array that need not be sorted.
struct Bisection {
  const void* sorted;
  int64_t size, steps;
};

// By whether the place is behind equal numbers, and by whether it is written with 64 bits, not 32.
struct Searches {
  void (*number)(const Intervals& intervals, const void* from, int64_t count, int32_t* to);
  void (*place[2][2])(const Intervals& intervals, const void* from, int64_t count, void* to);
  void (*bisect[2][2])(const Bisection& bisection, const void* from, int64_t count, void* to);
};

struct Arithmetic {
  const char* name;
  Searches f32, f64;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::counting

#endif  // HLO_DISPATCH_COUNTING_ARITHMETIC_H_
