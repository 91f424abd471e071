// Sums of numbers and of their squares.
#include <cstdint>
#include <type_traits>

#include "reductions/elements.h"
#include "reductions/sums.h"

namespace hlo_dispatch::reductions {
namespace {

// Vectors at once: an addition takes as long as several reads.
constexpr int kVectors = 8;
// Numbers whose sum is rounded to their type: so few that it is off by little, and as many as make the rest cheap.
constexpr int64_t kBlock = 4096;

// What is summed up of a number or of each lane.
template <Term term, typename V>
HLO_DISPATCH_INLINE V Of(V value) {
  if constexpr (term == kSquares) return value * value;
  return value;
}

template <typename V, int step = sizeof(V{}) / sizeof(V{}[0]) / 2>
HLO_DISPATCH_INLINE auto TotalOfLanes(V value) {
  decltype(value == value) places;
  for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(value[0])); ++i) places[i] = i ^ step;
  value += __builtin_shuffle(value, places);
  if constexpr (step == 1)
    return value[0];
  else
    return TotalOfLanes<V, step / 2>(value);
}

// The last `count` lanes, and 0 in the rest.
template <typename V>
HLO_DISPATCH_INLINE V LastOf(V value, int64_t count) {
  using Numbers = decltype(value == value);
  constexpr int kCount = static_cast<int>(sizeof(V) / sizeof(value[0]));
  Numbers numbers;
  for (int i = 0; i < kCount; ++i) numbers[i] = kCount - i;
  return numbers <= static_cast<std::remove_reference_t<decltype(numbers[0])>>(count) ? value : V{};
}

template <typename Type, Term term>
HLO_DISPATCH_INLINE typename Type::Number SumOfBlock(const typename Type::Element* from, int64_t count) {
  using Number = typename Type::Number;
  using Vector = typename Type::Vector;
  constexpr auto kCount = static_cast<int64_t>(sizeof(Vector) / sizeof(Number));
  Vector sums[kVectors];
  for (Vector& sum : sums) sum = Vector{};
  int64_t i = 0;
  for (; i + kVectors * kCount <= count; i += kVectors * kCount) {
    for (int k = 0; k < kVectors; ++k) sums[k] += Of<term>(Type::Read(from + i + k * kCount));
  }
  for (; i + kCount <= count; i += kCount) sums[0] += Of<term>(Type::Read(from + i));
  // Of the last vector only what no other one had.
  if (i < count && count >= kCount) {
    sums[1] += Of<term>(LastOf(Type::Read(from + count - kCount), count - i));
    i = count;
  }
  for (int step = kVectors / 2; step > 0; step /= 2) {
    for (int k = 0; k < step; ++k) sums[k] += sums[k + step];
  }
  Number total = TotalOfLanes(sums[0]);
  for (; i < count; ++i) total += Of<term>(Type::ReadOne(from + i));
  return total;
}

template <typename Type, Term term>
double Sum(const void* source, int64_t count) {
  const auto* from = static_cast<const typename Type::Element*>(source);
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    total += SumOfBlock<Type, term>(from + begin, count - begin < kBlock ? count - begin : kBlock);
  }
  return total;
}

}  // namespace

#define HLO_DISPATCH_SUMS_OF(Type) {Sum<Type, kValues>, Sum<Type, kSquares>}

namespace HLO_DISPATCH_ISA {
const SumArithmetic kSumArithmetic = {
    HLO_DISPATCH_ISA_NAME,
    {HLO_DISPATCH_SUMS_OF(Same<float>), HLO_DISPATCH_SUMS_OF(Same<double>), HLO_DISPATCH_SUMS_OF(Half)}};
}

}  // namespace hlo_dispatch::reductions
