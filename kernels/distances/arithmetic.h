// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_DISTANCES_ARITHMETIC_H_
#define HLO_DISPATCH_DISTANCES_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::distances {

// Points of a panel lie side by side, one coordinate behind the other; those that are missing are filled up.
inline constexpr int64_t kPanel = 32;
// Coordinates that are summed up at once: what is rounded off does not grow with all of them.
inline constexpr int64_t kDepth = 64;

struct Arithmetic {
  const char* name;
  // to[r * stride + c] (+)= the sum of (points[r * depth + k] - panel[k * kPanel + c])² over `count` coordinates k, for
  // `rows` points and the first `columns` of the panel; it is added to where `adds` says so.
  void (*f32)(const void* points, int64_t depth, int64_t rows, const void* panel, int64_t count, int64_t columns,
              bool adds, void* to, int64_t stride);
  void (*f64)(const void* points, int64_t depth, int64_t rows, const void* panel, int64_t count, int64_t columns,
              bool adds, void* to, int64_t stride);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::distances

#endif  // HLO_DISPATCH_DISTANCES_ARITHMETIC_H_
