// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_INTEGER_PRODUCT_ARITHMETIC_H_
#define HLO_DISPATCH_INTEGER_PRODUCT_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::integer_product {

// Of a tile.
inline constexpr int64_t kRows = 6, kColumns = 32;

// sums[r * kColumns + c] = sum over k of a[r * distance + k] * b[k * kColumns + c], for `count` k, modulo 2^32.
using Multiply = void (*)(const int32_t* a, int64_t distance, const int32_t* b, int64_t count, int32_t* sums);

struct Arithmetic {
  const char* name;
  Multiply words;
  // Each word holds two numbers of 16 bits, which are multiplied by themselves, and both products are added.
  Multiply pairs;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::integer_product

#endif  // HLO_DISPATCH_INTEGER_PRODUCT_ARITHMETIC_H_
