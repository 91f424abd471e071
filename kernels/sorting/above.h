// The search of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_SORTING_ABOVE_H_
#define HLO_DISPATCH_SORTING_ABOVE_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::sorting {

struct Search {
  const char* name;
  // The first place at or behind `begin` of a float above the bound, given by their bits, in the order of signed keys;
  // `count`: there is none.
  int64_t (*first_above32)(const uint32_t* bits, int64_t begin, int64_t count, int32_t bound);
  int64_t (*first_above64)(const uint64_t* bits, int64_t begin, int64_t count, int64_t bound);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Search kSearch;)

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_ABOVE_H_
