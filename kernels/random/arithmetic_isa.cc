// Threefry of two words, in vectors of pairs that stay in registers through all rounds.
#include "random/arithmetic.h"

#include <algorithm>
#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::random {
namespace {

constexpr int64_t kCount = kVectorBytes / static_cast<int64_t>(sizeof(uint32_t));
// Vectors that are hashed side by side: each step of one waits for the step before.
constexpr int kTogether = 4;
constexpr int kGroups = 5, kRounds = 4;
constexpr int kRotations[2][kRounds] = {{13, 15, 26, 6}, {17, 29, 16, 24}};

typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));

template <int group, int round, int vectors>
HLO_DISPATCH_INLINE void Round(Words* first, Words* second) {
  constexpr int bits = kRotations[group % 2][round];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    first[v] += second[v];
    second[v] = (second[v] << bits | second[v] >> (32 - bits)) ^ first[v];
  }
}

template <int group, int vectors>
HLO_DISPATCH_INLINE void Groups(Words* first, Words* second, const uint32_t* keys) {
  if constexpr (group < kGroups) {
    Round<group, 0, vectors>(first, second);
    Round<group, 1, vectors>(first, second);
    Round<group, 2, vectors>(first, second);
    Round<group, 3, vectors>(first, second);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      first[v] += keys[group % kKeys];
      second[v] += keys[(group + 1) % kKeys] + (group + 1);
    }
    Groups<group + 1, vectors>(first, second, keys);
  }
}

template <int vectors>
HLO_DISPATCH_INLINE void HashVectors(const uint32_t* first, const uint32_t* second, const uint32_t* keys,
                                     uint32_t* hashed_first, uint32_t* hashed_second) {
  Words one[vectors], other[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    one[v] = *reinterpret_cast<const Anywhere*>(first + v * kCount);
    other[v] = *reinterpret_cast<const Anywhere*>(second + v * kCount);
  }
  Groups<0, vectors>(one, other, keys);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    *reinterpret_cast<Anywhere*>(hashed_first + v * kCount) = one[v];
    *reinterpret_cast<Anywhere*>(hashed_second + v * kCount) = other[v];
  }
}

void Hash(const uint32_t* first, const uint32_t* second, int64_t count, const uint32_t keys[kKeys],
          uint32_t* hashed_first, uint32_t* hashed_second) {
  int64_t i = 0;
  for (; i + kTogether * kCount <= count; i += kTogether * kCount) {
    HashVectors<kTogether>(first + i, second + i, keys, hashed_first + i, hashed_second + i);
  }
  for (; i < count; i += kCount) {
    const int64_t rest = std::min(kCount, count - i);
    uint32_t words[2][kCount] = {}, hashed[2][kCount];
    std::copy_n(first + i, rest, words[0]);
    std::copy_n(second + i, rest, words[1]);
    HashVectors<1>(words[0], words[1], keys, hashed[0], hashed[1]);
    std::copy_n(hashed[0], rest, hashed_first + i);
    std::copy_n(hashed[1], rest, hashed_second + i);
  }
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, Hash};
}

}  // namespace hlo_dispatch::random
