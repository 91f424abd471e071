// Quicksort of whole numbers by vectors, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_SORTING_QUICKSORT_H_
#define HLO_DISPATCH_SORTING_QUICKSORT_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::sorting {

// Of signed numbers. `spare` is as large as `elements`, and what is in it is lost.
template <typename T>
struct NumberSort {
  // With `moves` the result is in `spare`.
  void (*sort)(T* elements, T* spare, int64_t count, bool moves);
  // Divides elements by parts - 1 sorted bounds, each the last of its part; `parts` is a power of two. Part i is
  // [begins[i], begins[i + 1]) of `spare` where i has an odd number of bits, else of `elements`.
  void (*divide)(T* elements, T* spare, int64_t count, const T* bounds, int64_t parts, int64_t* begins);
  // to = from ^ (from < 0 ? negative : positive)
  void (*exclusive_or)(const T* from, T* to, int64_t count, T positive, T negative);
};

// Without functions where there is nothing to sort vectors with.
struct Quicksort {
  const char* name;
  NumberSort<int32_t> of32;
  NumberSort<int64_t> of64;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Quicksort kQuicksort;)

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_QUICKSORT_H_
