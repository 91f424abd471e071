// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_RANDOM_ARITHMETIC_H_
#define HLO_DISPATCH_RANDOM_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::random {

inline constexpr int kKeys = 3;

struct Arithmetic {
  const char* name;
  // Hashes `count` pairs of words, each of `first` with the one at its place of `second`.
  void (*hash)(const uint32_t* first, const uint32_t* second, int64_t count, const uint32_t keys[kKeys],
               uint32_t* hashed_first, uint32_t* hashed_second);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::random

#endif  // HLO_DISPATCH_RANDOM_ARITHMETIC_H_
