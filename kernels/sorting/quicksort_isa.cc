// Quicksort by vectors: elements are divided by compressing vectors, few of them are sorted in registers.
#include "sorting/quicksort.h"

#include <algorithm>
#include <cstdint>

#ifdef __AVX2__
#include "sorting/partition.h"
#include "sorting/vector_network.h"
#endif

namespace hlo_dispatch::sorting {

#ifdef __AVX2__

namespace {

// Vectors that are sorted in registers, of which there are 32 or 16.
constexpr int kMostVectors = kVectorBytes == 64 ? 16 : 8;
template <typename T>
inline constexpr int64_t kMost = kMostVectors * kCount<T>;

template <typename T, int vectors = 1>
HLO_DISPATCH_INLINE void SortFew(const T* from, T* to, int64_t count) {
  if constexpr (vectors < kMostVectors) {
    if (count > vectors * kCount<T>) return SortFew<T, 2 * vectors>(from, to, count);
  }
  constexpr int size = vectors * kCount<T>;
  alignas(64) T padded[size];
  std::copy_n(from, count, padded);
  std::fill(padded + count, padded + size, INT64_MAX >> (64 - 8 * sizeof(T)));
  SortInRegisters<T, vectors>(padded);
  std::copy_n(padded, count, to);
}

// Elements at places that do not depend on what is sorted: no order of it makes most bounds poor.
template <typename T>
class Sample {
 public:
  explicit Sample(const T* memory) : state_(reinterpret_cast<uintptr_t>(memory) | 1) {}

  // Draws some, in order: more of many.
  void Draw(const T* elements, int64_t count) {
    if (count < kMany) return DrawVectors<1>(elements, count);
    DrawVectors<kVectors>(elements, count);
  }
  bool AreEqual() const { return drawn_[0] == drawn_[size_ - 1]; }
  // One that leaves elements at both sides of it, unless all are equal.
  T Bound() const {
    const T median = drawn_[size_ / 2];
    return median < drawn_[size_ - 1] ? median : median - 1;
  }
  T any() const { return drawn_[0]; }

 private:
  static constexpr int kVectors = 4;
  static constexpr int64_t kMany = 32 * kMost<T>;

  template <int vectors>
  void DrawVectors(const T* elements, int64_t count) {
    size_ = vectors * kCount<T>;
    for (int i = 0; i < size_; ++i) {
      state_ ^= state_ << 13;
      state_ ^= state_ >> 7;
      state_ ^= state_ << 17;
      drawn_[i] = elements[(state_ >> 32) * static_cast<uint64_t>(count) >> 32];
    }
    SortInRegisters<T, vectors>(drawn_);
  }

  uint64_t state_;
  int size_ = 0;
  alignas(64) T drawn_[kVectors * kCount<T>];
};

template <typename T>
void Sort(T* elements, T* spare, int64_t count, bool moves, Sample<T>& sample) {
  while (count > kMost<T>) {
    sample.Draw(elements, count);
    if (!sample.AreEqual()) {
      const int64_t low = Partition(elements, spare, count, sample.Bound()), high = count - low;
      // The larger part later, so that there is little to come back to.
      if (low > high) {
        Sort(spare + low, elements + low, high, !moves, sample);
        count = low;
      } else {
        Sort(elements, spare, low, moves, sample);
        T* others = elements + low;
        elements = spare + low;
        spare = others;
        count = high;
        moves = !moves;
      }
      continue;
    }
    const T common = sample.any();
    const int64_t low = Partition(elements, spare, count, common);
    const bool has_smaller = common != INT64_MIN >> (64 - 8 * sizeof(T));
    const int64_t smaller = has_smaller ? Partition(elements, spare, low, common - 1) : 0;
    // Those above were moved behind what the second division writes.
    Sort(spare + low, elements + low, count - low, !moves, sample);
    std::fill((moves ? spare : elements) + smaller, (moves ? spare : elements) + low, common);
    count = smaller;
  }
  SortFew(elements, moves ? spare : elements, count);
}

template <typename T>
void SortAll(T* elements, T* spare, int64_t count, bool moves) {
  if (count > kMost<T> && std::is_sorted(elements, elements + count)) {
    if (moves) std::copy_n(elements, count, spare);
    return;
  }
  Sample<T> sample(elements);
  Sort(elements, spare, count, moves, sample);
}

template <typename T>
void DivideByBounds(T* elements, T* spare, int64_t count, const T* bounds, int64_t parts, int64_t* begins) {
  if (parts == 1) {
    begins[1] = begins[0] + count;
    return;
  }
  const int64_t half = parts / 2, begin = begins[0];
  const int64_t low = Partition(elements, spare, count, bounds[half - 1]);
  DivideByBounds(elements, spare, low, bounds, half, begins);
  begins[half] = begin + low;
  DivideByBounds(spare + low, elements + low, count - low, bounds + half, half, begins + half);
}

template <typename T>
void Divide(T* elements, T* spare, int64_t count, const T* bounds, int64_t parts, int64_t* begins) {
  begins[0] = 0;
  DivideByBounds(elements, spare, count, bounds, parts, begins);
}

template <typename T>
void ExclusiveOr(const T* from, T* to, int64_t count, T positive, T negative) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] ^ (from[i] < 0 ? negative : positive);
}

template <typename T>
constexpr NumberSort<T> kOf = {SortAll<T>, Divide<T>, ExclusiveOr<T>};

}  // namespace

namespace HLO_DISPATCH_ISA {
const Quicksort kQuicksort = {HLO_DISPATCH_ISA_NAME, kOf<int32_t>, kOf<int64_t>};
}

#else

namespace HLO_DISPATCH_ISA {
const Quicksort kQuicksort = {HLO_DISPATCH_ISA_NAME, {}, {}};
}

#endif

}  // namespace hlo_dispatch::sorting
