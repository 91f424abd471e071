// Loops over blocks of numbers: what XLA's elementwise opcodes compute.
#include "elementwise/arithmetic.h"

#include <cstdint>

#include "common/vectors.h"
#include "elementwise/operations.h"

namespace hlo_dispatch::elementwise {
namespace {

// An operand: its numbers side by side, or one for all elements.
template <typename T, bool single>
HLO_DISPATCH_INLINE T At(const void* from, int64_t i) {
  return static_cast<const T*>(from)[single ? 0 : i];
}

// Blocks are padded to whole vectors, which spares the compiler a loop for the rest.
HLO_DISPATCH_INLINE int64_t Whole(int64_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

template <typename To, typename From, typename Operation, bool single>
void Unary(const Arguments& a) {
  auto* to = static_cast<To*>(a.to);
  const int64_t count = Whole(a.count);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = Operation::Of(At<From, single>(a.from[0], i));
}

template <typename To, typename From, typename Operation, bool first, bool second>
void Binary(const Arguments& a) {
  auto* to = static_cast<To*>(a.to);
  const int64_t count = Whole(a.count);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    to[i] = Operation::Of(At<From, first>(a.from[0], i), At<From, second>(a.from[1], i));
  }
}

template <typename T, bool which, bool first, bool second>
void Select(const Arguments& a) {
  auto* to = static_cast<T*>(a.to);
  const int64_t count = Whole(a.count);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const T one = At<T, first>(a.from[1], i), other = At<T, second>(a.from[2], i);
    to[i] = At<Mask, which>(a.from[0], i) != 0 ? one : other;
  }
}

// --- functions of vectors ------------------------------------------------------------------------------------

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Value __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Value __attribute__((vector_size(kVectorBytes)));
};

template <typename T, bool single>
HLO_DISPATCH_INLINE typename VectorOf<T>::Value VectorAt(const void* from, int64_t i) {
  typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  if constexpr (single) return static_cast<const T*>(from)[0] - typename VectorOf<T>::Value{};
  return *reinterpret_cast<const Anywhere*>(static_cast<const T*>(from) + i);
}

template <typename T, bool single>
void UnaryFunction(const Arguments& a) {
  using Value = typename VectorOf<T>::Value;
  typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  const auto function = reinterpret_cast<Value (*)(Value)>(a.function);
  auto* to = static_cast<T*>(a.to);
  constexpr auto lanes = static_cast<int64_t>(kVectorBytes / sizeof(T));
  for (int64_t i = 0; i < a.count; i += lanes) {
    *reinterpret_cast<Anywhere*>(to + i) = function(VectorAt<T, single>(a.from[0], i));
  }
}

template <typename T, bool first, bool second>
void BinaryFunction(const Arguments& a) {
  using Value = typename VectorOf<T>::Value;
  typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  const auto function = reinterpret_cast<Value (*)(Value, Value)>(a.function);
  auto* to = static_cast<T*>(a.to);
  constexpr auto lanes = static_cast<int64_t>(kVectorBytes / sizeof(T));
  for (int64_t i = 0; i < a.count; i += lanes) {
    *reinterpret_cast<Anywhere*>(to + i) =
        function(VectorAt<T, first>(a.from[0], i), VectorAt<T, second>(a.from[1], i));
  }
}

// --- the table ----------------------------------------------------------------------------------------------

template <typename To, typename From, typename Operation>
Loop UnaryLoop(unsigned singles) {
  return singles == 0 ? Unary<To, From, Operation, false> : Unary<To, From, Operation, true>;
}

template <typename To, typename From, typename Operation>
Loop BinaryLoop(unsigned singles) {
  constexpr Loop kLoops[] = {Binary<To, From, Operation, false, false>, Binary<To, From, Operation, true, false>,
                             Binary<To, From, Operation, false, true>, Binary<To, From, Operation, true, true>};
  return kLoops[singles];
}

template <typename T>
Loop SelectLoop(unsigned singles) {
  constexpr Loop kLoops[] = {Select<T, false, false, false>, Select<T, true, false, false>,
                             Select<T, false, true, false>,  Select<T, true, true, false>,
                             Select<T, false, false, true>,  Select<T, true, false, true>,
                             Select<T, false, true, true>,   Select<T, true, true, true>};
  return kLoops[singles];
}

template <typename T>
Loop BinaryFunctionLoop(unsigned singles) {
  constexpr Loop kLoops[] = {BinaryFunction<T, false, false>, BinaryFunction<T, true, false>,
                             BinaryFunction<T, false, true>, BinaryFunction<T, true, true>};
  return kLoops[singles];
}

Loop LoopOfMasks(Operation operation, unsigned singles) {
  switch (operation) {
    case Operation::kAnd:
      return BinaryLoop<Mask, Mask, And>(singles);
    case Operation::kOr:
      return BinaryLoop<Mask, Mask, Or>(singles);
    case Operation::kXor:
      return BinaryLoop<Mask, Mask, Xor>(singles);
    case Operation::kNot:
      return UnaryLoop<Mask, Mask, Not>(singles);
    case Operation::kSelect:
      return SelectLoop<Mask>(singles);
    default:
      return nullptr;
  }
}

template <typename T>
Loop LoopOf(Operation operation, unsigned singles) {
  switch (operation) {
    case Operation::kAdd:
      return BinaryLoop<T, T, Add>(singles);
    case Operation::kSubtract:
      return BinaryLoop<T, T, Subtract>(singles);
    case Operation::kMultiply:
      return BinaryLoop<T, T, Multiply>(singles);
    case Operation::kDivide:
      return BinaryLoop<T, T, Divide>(singles);
    case Operation::kMaximum:
      return BinaryLoop<T, T, Maximum>(singles);
    case Operation::kMinimum:
      return BinaryLoop<T, T, Minimum>(singles);
    case Operation::kEqual:
      return BinaryLoop<Mask, T, Equal>(singles);
    case Operation::kUnequal:
      return BinaryLoop<Mask, T, Unequal>(singles);
    case Operation::kGreaterOrEqual:
      return BinaryLoop<Mask, T, GreaterOrEqual>(singles);
    case Operation::kGreater:
      return BinaryLoop<Mask, T, Greater>(singles);
    case Operation::kLessOrEqual:
      return BinaryLoop<Mask, T, LessOrEqual>(singles);
    case Operation::kLess:
      return BinaryLoop<Mask, T, Less>(singles);
    case Operation::kSelect:
      return SelectLoop<T>(singles);
    case Operation::kAbs:
      return UnaryLoop<T, T, Abs>(singles);
    case Operation::kNegate:
      return UnaryLoop<T, T, Negate>(singles);
    case Operation::kSign:
      return UnaryLoop<T, T, Sign>(singles);
    case Operation::kFloor:
      return UnaryLoop<T, T, Floor>(singles);
    case Operation::kCeil:
      return UnaryLoop<T, T, Ceil>(singles);
    case Operation::kRoundToEven:
      return UnaryLoop<T, T, RoundToEven>(singles);
    case Operation::kRoundAwayFromZero:
      return UnaryLoop<T, T, RoundAwayFromZero>(singles);
    case Operation::kSquareRoot:
      return UnaryLoop<T, T, SquareRoot>(singles);
    case Operation::kReciprocalSquareRoot:
      return UnaryLoop<T, T, ReciprocalSquareRoot>(singles);
    case Operation::kIsFinite:
      return UnaryLoop<Mask, T, IsFinite>(singles);
    case Operation::kUnaryFunction:
      return singles == 0 ? UnaryFunction<T, false> : UnaryFunction<T, true>;
    case Operation::kBinaryFunction:
      return BinaryFunctionLoop<T>(singles);
    default:
      return nullptr;
  }
}

Loop ConvertingLoop(Type from, Type to, unsigned singles) {
  const bool is_double = from == Type::kF64;
  switch (to) {
    case Type::kF32:
      if (from == Type::kMask) return UnaryLoop<float, Mask, FromMask>(singles);
      return is_double ? UnaryLoop<float, double, Same>(singles) : UnaryLoop<float, float, Same>(singles);
    case Type::kF64:
      if (from == Type::kMask) return UnaryLoop<double, Mask, FromMask>(singles);
      return is_double ? UnaryLoop<double, double, Same>(singles) : UnaryLoop<double, float, Same>(singles);
    case Type::kBF16:
      return from == Type::kF32 ? UnaryLoop<float, float, RoundedToBf16>(singles) : nullptr;
    case Type::kF16:
      return from == Type::kF32 ? UnaryLoop<float, float, RoundedToF16>(singles) : nullptr;
    case Type::kMask:
      break;
  }
  return nullptr;
}

Loop Find(Operation operation, Type from, Type to, unsigned singles) {
  if (operation == Operation::kConvert) return ConvertingLoop(from, to, singles);
  if (from == Type::kMask) return LoopOfMasks(operation, singles);
  return from == Type::kF64 ? LoopOf<double>(operation, singles) : LoopOf<float>(operation, singles);
}

// --- memory -------------------------------------------------------------------------------------------------

template <typename From, typename To, typename Convert>
HLO_DISPATCH_INLINE void Copy(const void* source, int64_t stride, int64_t count, void* destination, Convert convert) {
  const auto* from = static_cast<const From*>(source);
  auto* to = static_cast<To*>(destination);
  if (stride == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = convert(from[i]);
  } else if (stride == 0) {
    const To value = convert(from[0]);
    for (int64_t i = 0; i < count; ++i) to[i] = value;
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = convert(from[i * stride]);
  }
}

void Widen(const void* from, int64_t stride, int64_t count, Type type, void* to) {
  switch (type) {
    case Type::kF32:
      return Copy<AnyFloat, float>(from, stride, count, to, [](float value) { return value; });
    case Type::kF64:
      return Copy<double, double>(from, stride, count, to, [](double value) { return value; });
    case Type::kBF16:
      return Copy<AnyHalf, float>(from, stride, count, to, FromBf16);
    case Type::kF16:
      return Copy<AnyHalf, float>(from, stride, count, to, FromF16);
    case Type::kMask:
      return Copy<uint8_t, Mask>(from, stride, count, to, [](uint8_t value) { return value != 0 ? -1 : 0; });
  }
}

void Narrow(const void* from, int64_t count, Type type, void* to) {
  switch (type) {
    case Type::kF32:
      return Copy<float, float>(from, 1, count, to, [](float value) { return value; });
    case Type::kF64:
      return Copy<double, double>(from, 1, count, to, [](double value) { return value; });
    case Type::kBF16:
      return Copy<float, uint16_t>(from, 1, count, to, ToBf16);
    case Type::kF16:
      return Copy<float, uint16_t>(from, 1, count, to, ToF16);
    case Type::kMask:
      return Copy<Mask, uint8_t>(from, 1, count, to, [](Mask value) { return static_cast<uint8_t>(value != 0); });
  }
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, kLanes, Find, Widen, Narrow};
}

}  // namespace hlo_dispatch::elementwise
