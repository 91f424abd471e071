// Sorting networks of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_SORTING_NETWORK_H_
#define HLO_DISPATCH_SORTING_NETWORK_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::sorting {

// Several lines at once, one in each lane of a vector: element i of line j is elements[i * lanes + j].
struct Network {
  const char* name;
  int lanes32, lanes64;
  void (*sort32)(uint32_t* elements, int64_t count);
  void (*sort64)(uint64_t* elements, int64_t count);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Network kNetwork;)

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_NETWORK_H_
