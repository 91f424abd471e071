// What XLA's elementwise opcodes compute of a number each; for files that are compiled once for each instruction set.
#ifndef HLO_DISPATCH_ELEMENTWISE_OPERATIONS_H_
#define HLO_DISPATCH_ELEMENTWISE_OPERATIONS_H_

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::elementwise {
namespace {

using Mask = int32_t;

struct Add {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a, T b) {
    return a + b;
  }
};
struct Subtract {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a, T b) {
    return a - b;
  }
};
struct Multiply {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a, T b) {
    return a * b;
  }
};
struct Divide {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a, T b) {
    return a / b;
  }
};
// NaN where either is one; -0 is less than 0. Zeros of two signs have the sum 0.
struct Maximum {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a, T b) {
    return a > b || a != a ? a : a == 0 && b == 0 ? a + b : b;
  }
};
struct Minimum {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a, T b) {
    return a < b || a != a ? a : a == 0 && b == 0 ? -(-a - b) : b;
  }
};
struct Equal {
  template <typename T>
  static HLO_DISPATCH_INLINE Mask Of(T a, T b) {
    return a == b ? -1 : 0;
  }
};
struct Unequal {
  template <typename T>
  static HLO_DISPATCH_INLINE Mask Of(T a, T b) {
    return a != b ? -1 : 0;
  }
};
struct GreaterOrEqual {
  template <typename T>
  static HLO_DISPATCH_INLINE Mask Of(T a, T b) {
    return a >= b ? -1 : 0;
  }
};
struct Greater {
  template <typename T>
  static HLO_DISPATCH_INLINE Mask Of(T a, T b) {
    return a > b ? -1 : 0;
  }
};
struct LessOrEqual {
  template <typename T>
  static HLO_DISPATCH_INLINE Mask Of(T a, T b) {
    return a <= b ? -1 : 0;
  }
};
struct Less {
  template <typename T>
  static HLO_DISPATCH_INLINE Mask Of(T a, T b) {
    return a < b ? -1 : 0;
  }
};
struct And {
  static HLO_DISPATCH_INLINE Mask Of(Mask a, Mask b) { return a & b; }
};
struct Or {
  static HLO_DISPATCH_INLINE Mask Of(Mask a, Mask b) { return a | b; }
};
struct Xor {
  static HLO_DISPATCH_INLINE Mask Of(Mask a, Mask b) { return a ^ b; }
};
struct Not {
  static HLO_DISPATCH_INLINE Mask Of(Mask a) { return ~a; }
};
struct Abs {
  static HLO_DISPATCH_INLINE float Of(float a) { return __builtin_fabsf(a); }
  static HLO_DISPATCH_INLINE double Of(double a) { return __builtin_fabs(a); }
};
struct Negate {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a) {
    return -a;
  }
};
// Zeros keep their sign, NaN stays one.
struct Sign {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a) {
    return a > 0 ? T{1} : a < 0 ? T{-1} : a;
  }
};
struct Floor {
  static HLO_DISPATCH_INLINE float Of(float a) { return __builtin_floorf(a); }
  static HLO_DISPATCH_INLINE double Of(double a) { return __builtin_floor(a); }
};
struct Ceil {
  static HLO_DISPATCH_INLINE float Of(float a) { return __builtin_ceilf(a); }
  static HLO_DISPATCH_INLINE double Of(double a) { return __builtin_ceil(a); }
};
struct RoundToEven {
  static HLO_DISPATCH_INLINE float Of(float a) { return __builtin_rintf(a); }
  static HLO_DISPATCH_INLINE double Of(double a) { return __builtin_rint(a); }
};
struct RoundAwayFromZero {
  static HLO_DISPATCH_INLINE float Of(float a) { return __builtin_roundf(a); }
  static HLO_DISPATCH_INLINE double Of(double a) { return __builtin_round(a); }
};
struct SquareRoot {
  static HLO_DISPATCH_INLINE float Of(float a) { return __builtin_sqrtf(a); }
  static HLO_DISPATCH_INLINE double Of(double a) { return __builtin_sqrt(a); }
};
struct ReciprocalSquareRoot {
  static HLO_DISPATCH_INLINE float Of(float a) { return 1.0f / __builtin_sqrtf(a); }
  static HLO_DISPATCH_INLINE double Of(double a) { return 1.0 / __builtin_sqrt(a); }
};
struct IsFinite {
  template <typename T>
  static HLO_DISPATCH_INLINE Mask Of(T a) {
    return a - a == 0 ? -1 : 0;
  }
};
struct Same {
  template <typename T>
  static HLO_DISPATCH_INLINE T Of(T a) {
    return a;
  }
};
struct RoundedToBf16 {
  static HLO_DISPATCH_INLINE float Of(float a) { return FromBf16(ToBf16(a)); }
};
struct RoundedToF16 {
  static HLO_DISPATCH_INLINE float Of(float a) { return FromF16(ToF16(a)); }
};
struct FromMask {
  static HLO_DISPATCH_INLINE float Of(Mask a) { return a != 0 ? 1.0f : 0.0f; }
};

}  // namespace
}  // namespace hlo_dispatch::elementwise

#endif  // HLO_DISPATCH_ELEMENTWISE_OPERATIONS_H_
