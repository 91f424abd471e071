// Sorting networks of vectors: elements that fit into registers. Of *_isa.cc.
#ifndef HLO_DISPATCH_SORTING_VECTOR_NETWORK_H_
#define HLO_DISPATCH_SORTING_VECTOR_NETWORK_H_

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::sorting {
namespace {

template <typename T>
inline constexpr int kCount = kVectorBytes / sizeof(T);
template <typename T>
struct Of {
  typedef T Value __attribute__((vector_size(kVectorBytes)));
  typedef T InMemory __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
};
template <typename T>
using ValueOf = typename Of<T>::Value;

template <typename T>
HLO_DISPATCH_INLINE ValueOf<T> LoadOf(const T* from) {
  return *reinterpret_cast<const typename Of<T>::InMemory*>(from);
}
template <typename T>
HLO_DISPATCH_INLINE void StoreOf(T* to, ValueOf<T> value) {
  *reinterpret_cast<typename Of<T>::InMemory*>(to) = value;
}

template <typename V>
HLO_DISPATCH_INLINE void Order(V& first, V& second) {
  const V smaller = first < second ? first : second;
  second = first < second ? second : first;
  first = smaller;
}

// Lane i and lane i ^ step are exchanged.
template <typename T, int step>
HLO_DISPATCH_INLINE ValueOf<T> LanesExchanged(ValueOf<T> value) {
  ValueOf<T> places;
  for (int i = 0; i < kCount<T>; ++i) places[i] = i ^ step;
  return __builtin_shuffle(value, places);
}

// Orders lane i and lane i ^ step; the one with the bit `high` becomes the larger.
template <typename T, int step, int high>
HLO_DISPATCH_INLINE void OrderLanes(ValueOf<T>& value) {
  ValueOf<T> is_high;
  for (int i = 0; i < kCount<T>; ++i) is_high[i] = (i & high) != 0 ? -1 : 0;
  ValueOf<T> larger = LanesExchanged<T, step>(value);
  Order(value, larger);
  value = is_high ? larger : value;
}

// Batcher's odd-even mergesort of vectors, lane by lane.
template <int first, int count, int step, typename V>
HLO_DISPATCH_INLINE void MergeVectors(V* values) {
  if constexpr (2 * step < count) {
    MergeVectors<first, count, 2 * step>(values);
    MergeVectors<first + step, count, 2 * step>(values);
#pragma GCC unroll 16
    for (int i = first + step; i + step < first + count; i += 2 * step) Order(values[i], values[i + step]);
  } else {
    Order(values[first], values[first + step]);
  }
}
template <int first, int count, typename V>
HLO_DISPATCH_INLINE void SortVectors(V* values) {
  if constexpr (count > 1) {
    SortVectors<first, count / 2>(values);
    SortVectors<first + count / 2, count / 2>(values);
    MergeVectors<first, count, 1>(values);
  }
}

// Bitonic merges: lanes in groups of `width` / 2, each in order across its vectors, become groups of `width`.
template <typename T, int vectors, int width, int block>
HLO_DISPATCH_INLINE void MergeBlocks(ValueOf<T>* values) {
  if constexpr (block > 1) {
#pragma GCC unroll 16
    for (int begin = 0; begin < vectors; begin += block) {
#pragma GCC unroll 16
      for (int i = 0; i < block / 2; ++i) {
        ValueOf<T>& last = values[begin + block - 1 - i];
        last = LanesExchanged<T, width - 1>(last);
        Order(values[begin + i], last);
      }
    }
    MergeBlocks<T, vectors, width, block / 2>(values);
  }
}
template <typename T, int step>
HLO_DISPATCH_INLINE void MergeLanes(ValueOf<T>& value) {
  if constexpr (step > 0) {
    OrderLanes<T, step, step>(value);
    MergeLanes<T, step / 2>(value);
  }
}
template <typename T, int vectors, int width>
HLO_DISPATCH_INLINE void MergeGroups(ValueOf<T>* values) {
  if constexpr (width <= kCount<T>) {
    MergeBlocks<T, vectors, width, vectors>(values);
#pragma GCC unroll 16
    for (int i = 0; i < vectors; ++i) {
      OrderLanes<T, width - 1, width / 2>(values[i]);
      MergeLanes<T, width / 4>(values[i]);
    }
    MergeGroups<T, vectors, 2 * width>(values);
  }
}

// Sorts so many vectors of elements.
template <typename T, int vectors>
__attribute__((noinline)) void SortInRegisters(T* elements) {
  ValueOf<T> values[vectors];
#pragma GCC unroll 16
  for (int i = 0; i < vectors; ++i) values[i] = LoadOf(elements + i * kCount<T>);
  SortVectors<0, vectors>(values);
  MergeGroups<T, vectors, 2>(values);
#pragma GCC unroll 16
  for (int i = 0; i < vectors; ++i) StoreOf(elements + i * kCount<T>, values[i]);
}

}  // namespace
}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_VECTOR_NETWORK_H_
