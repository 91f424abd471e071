// Keys that are the numbers of all places, as those of an inverse permutation: each says where its element belongs.
#ifndef HLO_DISPATCH_SORTING_PERMUTATION_H_
#define HLO_DISPATCH_SORTING_PERMUTATION_H_

#include <algorithm>
#include <cstdint>

namespace hlo_dispatch::sorting {

// Writes each element where its key says; false as soon as a key is no place's number, or that of one before.
//
// Args:
//   is_seen: memory for `count`.
template <typename Element>
bool Permute(const uint32_t* keys, const Element* elements, int64_t count, bool is_descending, uint8_t* is_seen,
             Element* permuted) {
  // So many are looked at before the next question whether one was seen twice.
  constexpr int64_t kTogether = 64;
  std::fill_n(is_seen, count, uint8_t{0});
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    const int64_t end = std::min(count, begin + kTogether);
    uint8_t is_repeated = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = keys[i];
      if (place >= count) return false;
      is_repeated |= is_seen[place];
      is_seen[place] = 1;
      permuted[is_descending ? count - 1 - place : place] = elements[i];
    }
    if (is_repeated != 0) return false;
  }
  return true;
}

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_PERMUTATION_H_
