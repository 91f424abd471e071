// Sums of rows that lie anywhere: as much of a row at once as has sums in registers.
#include "sparse/gathered.h"

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::sparse {
namespace {

// Lines of rows so far ahead are fetched: where they are is not to be foreseen.
constexpr int64_t kAhead = 6;
// Rows whose sum is rounded to its type: so few that it is off by little. Sums of blocks are added up with what each
// addition rounds off (Knuth's two-sum).
constexpr int64_t kBlock = 128;
// Vectors of sums in registers, half of which there are.
constexpr int kMostVectors = kVectorBytes == 64 ? 16 : 8;

// Numbers as they are in rows, in sums and in the result.
template <typename T>
struct Same {
  using Number = T;
  typedef T Element __attribute__((may_alias, aligned(1)));
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  static constexpr int64_t kBytes = sizeof(T), kBytesOfResult = sizeof(T);
  static HLO_DISPATCH_INLINE Vector Read(const char* from) { return *reinterpret_cast<const Anywhere*>(from); }
  static HLO_DISPATCH_INLINE T ReadOne(const char* from) { return *reinterpret_cast<const Element*>(from); }
  static HLO_DISPATCH_INLINE void Write(char* to, Vector sums) { *reinterpret_cast<Anywhere*>(to) = sums; }
  static HLO_DISPATCH_INLINE void WriteOne(char* to, T sum) { *reinterpret_cast<Element*>(to) = sum; }
};

struct HalfToSingle : Same<float> {
  static constexpr int64_t kBytes = 2;
  static HLO_DISPATCH_INLINE Vector Read(const char* from) { return LoadBf16(from); }
  static HLO_DISPATCH_INLINE float ReadOne(const char* from) {
    return FromBf16(*reinterpret_cast<const AnyHalf*>(from));
  }
};

struct Half : HalfToSingle {
  static constexpr int64_t kBytesOfResult = 2;
  static HLO_DISPATCH_INLINE void Write(char* to, Vector sums) { StoreBf16(reinterpret_cast<AnyHalf*>(to), sums); }
  static HLO_DISPATCH_INLINE void WriteOne(char* to, float sum) { *reinterpret_cast<AnyHalf*>(to) = ToBf16(sum); }
};

template <typename Value>
HLO_DISPATCH_INLINE void AddExactly(Value value, Value* total, Value* lost) {
  const Value sum = *total + value;
  const Value added = sum - *total;
  *lost += (*total - (sum - added)) + (value - added);
  *total = sum;
}

// What infinite sums have lost is no number.
template <typename Value>
HLO_DISPATCH_INLINE Value WithLost(Value total, Value lost) {
  return lost == lost ? total + lost : total;
}

// The columns of kVectors vectors, from one on.
template <typename Type, int kVectors>
HLO_DISPATCH_INLINE void SumVectors(const GatheredRows& gathered, int64_t column) {
  using Vector = typename Type::Vector;
  constexpr int64_t kStep = kVectorBytes / static_cast<int64_t>(sizeof(typename Type::Number)) * Type::kBytes;
  const int64_t offset = column * Type::kBytes;
  Vector totals[kVectors], lost[kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) totals[i] = lost[i] = Vector{};
  for (int64_t begin = 0; begin < gathered.count; begin += kBlock) {
    const int64_t end = gathered.count - begin < kBlock ? gathered.count : begin + kBlock;
    Vector sums[kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) sums[i] = Vector{};
    for (int64_t k = begin; k < end; ++k) {
      const char* row = gathered.rows[k] + offset;
      if (k + kAhead < gathered.known) {
        const char* ahead = gathered.rows[k + kAhead] + offset;
        for (int64_t byte = 0; byte < kVectors * kStep; byte += kLine) __builtin_prefetch(ahead + byte);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) sums[i] += Type::Read(row + i * kStep);
    }
    if (gathered.count <= kBlock) {
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) totals[i] = sums[i];
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) AddExactly(sums[i], &totals[i], &lost[i]);
    }
  }
  if (gathered.count > kBlock) {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) totals[i] = WithLost(totals[i], lost[i]);
  }
  char* to = static_cast<char*>(gathered.to) + column * Type::kBytesOfResult;
  const auto factor = static_cast<typename Type::Number>(gathered.factor);
  constexpr int64_t kStepOfResult = kStep / Type::kBytes * Type::kBytesOfResult;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) Type::Write(to + i * kStepOfResult, totals[i] * factor);
}

template <typename Type>
HLO_DISPATCH_INLINE void SumColumn(const GatheredRows& gathered, int64_t column) {
  using Number = typename Type::Number;
  Number total = 0, lost = 0;
  for (int64_t begin = 0; begin < gathered.count; begin += kBlock) {
    const int64_t end = gathered.count - begin < kBlock ? gathered.count : begin + kBlock;
    Number sum = 0;
    for (int64_t k = begin; k < end; ++k) sum += Type::ReadOne(gathered.rows[k] + column * Type::kBytes);
    AddExactly(sum, &total, &lost);
  }
  Type::WriteOne(static_cast<char*>(gathered.to) + column * Type::kBytesOfResult,
                 WithLost(total, lost) * static_cast<Number>(gathered.factor));
}

template <typename Type>
void Sum(const GatheredRows& gathered) {
  constexpr int64_t kInVector = kVectorBytes / static_cast<int64_t>(sizeof(typename Type::Number));
  const int64_t width = gathered.width;
  int64_t column = 0;
  for (; column + kMostVectors * kInVector <= width; column += kMostVectors * kInVector) {
    SumVectors<Type, kMostVectors>(gathered, column);
  }
  for (; column + 4 * kInVector <= width; column += 4 * kInVector) SumVectors<Type, 4>(gathered, column);
  for (; column + kInVector <= width; column += kInVector) SumVectors<Type, 1>(gathered, column);
  // Of the last vector some columns are summed once more.
  if (column < width && width >= kInVector) {
    SumVectors<Type, 1>(gathered, width - kInVector);
    return;
  }
  for (; column < width; ++column) SumColumn<Type>(gathered, column);
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const GatheredArithmetic kGatheredArithmetic = {HLO_DISPATCH_ISA_NAME,
                                                {Sum<Same<float>>, Sum<Same<double>>, Sum<Half>, Sum<HalfToSingle>}};
}

}  // namespace hlo_dispatch::sparse
