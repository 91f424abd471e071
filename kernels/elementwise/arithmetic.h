// The arithmetic of this folder, once for each instruction set (common/vectors.h): loops over blocks of numbers.
#ifndef HLO_DISPATCH_ELEMENTWISE_ARITHMETIC_H_
#define HLO_DISPATCH_ELEMENTWISE_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::elementwise {

// Of a value in a block. Numbers of half precision are in f32, rounded; masks are integers of 32 bits, 0 or -1.
enum class Type { kF32, kF64, kBF16, kF16, kMask };

enum class Operation {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kEqual,
  kUnequal,
  kGreaterOrEqual,
  kGreater,
  kLessOrEqual,
  kLess,
  kAnd,
  kOr,
  kXor,
  kNot,
  kSelect,
  kAbs,
  kNegate,
  kSign,
  kFloor,
  kCeil,
  kRoundToEven,
  kRoundAwayFromZero,
  kSquareRoot,
  kReciprocalSquareRoot,
  kIsFinite,
  kConvert,
  kUnaryFunction,
  kBinaryFunction
};

// What a step reads and writes. Blocks are padded to whole vectors of the longest kind, so that no loop has a rest;
// a register may be written over an operand of the same type.
struct Arguments {
  void* to;
  const void* from[3];
  int64_t count;
  void* function;  // of kUnaryFunction and kBinaryFunction: of vectors, by address
};
using Loop = void (*)(const Arguments&);

// The numbers of the longest vector: blocks are padded to a multiple of it.
inline constexpr int64_t kPadding = 16;

struct Arithmetic {
  const char* name;
  // How many numbers of f32 a vector has, of f64 half as many.
  int64_t lanes;
  // The loop of an operation; null: there is none.
  //
  // Args:
  //   from: the type of its last operand.
  //   to: the type of its result.
  //   singles: bits for the operands that are one number for all elements, as many as the operation has.
  Loop (*loop)(Operation operation, Type from, Type to, unsigned singles);
  // Reads and writes `count` numbers of half precision or bytes of pred, as they are in memory, `stride` apart there.
  void (*widen)(const void* from, int64_t stride, int64_t count, Type type, void* to);
  void (*narrow)(const void* from, int64_t count, Type type, void* to);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::elementwise

#endif  // HLO_DISPATCH_ELEMENTWISE_ARITHMETIC_H_
