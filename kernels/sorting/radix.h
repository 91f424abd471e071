// Radix sort of unsigned numbers, the most significant digit first; a digit has more bits where more numbers differ.
#ifndef HLO_DISPATCH_SORTING_RADIX_H_
#define HLO_DISPATCH_SORTING_RADIX_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "common/parallel.h"
#include "common/rounding.h"
#include "sorting/on_threads.h"

namespace hlo_dispatch::sorting {

__extension__ typedef unsigned __int128 Wide;

inline constexpr int kMaxDigitBits = 11;
// So few are sorted by insertion.
inline constexpr int64_t kFew = 24;

template <typename Element>
int HighestBit(Element bits) {
  if constexpr (sizeof(Element) > sizeof(uint64_t)) {
    const auto high = static_cast<uint64_t>(bits >> 64);
    return high != 0 ? 64 + HighestBit(high) : HighestBit(static_cast<uint64_t>(bits));
  } else {
    return 63 - __builtin_clzll(static_cast<unsigned long long>(bits));
  }
}

// A digit: where it is, and what values it has.
struct Digit {
  int shift;
  uint32_t mask;

  // The highest one in which `count` elements differ, that leaves some of them in each of its values.
  template <typename Element>
  static Digit Of(Element differing, int64_t count) {
    const int bits = std::clamp(HighestBit(static_cast<uint64_t>(count)) - 2, 1, kMaxDigitBits);
    return {std::max(0, HighestBit(differing) + 1 - bits), (uint32_t{1} << bits) - 1};
  }
  template <typename Element>
  uint32_t operator()(Element element) const {
    return static_cast<uint32_t>(element >> shift) & mask;
  }
};

// What elements have not in common, and whether they are in order already.
template <typename Element>
std::pair<Element, bool> Differences(const Element* elements, int64_t count) {
  Element differing = 0;
  bool are_sorted = true;
  for (int64_t i = 1; i < count; ++i) {
    differing |= elements[i] ^ elements[0];
    are_sorted &= elements[i - 1] <= elements[i];
  }
  return {differing, are_sorted};
}

template <typename Element>
void Insert(Element* elements, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    const Element element = elements[i];
    int64_t place = i;
    for (; place > 0 && elements[place - 1] > element; --place) elements[place] = elements[place - 1];
    elements[place] = element;
  }
}

// Sorts `elements`; with `moves` the result is in `spare`, which is as large.
template <typename Element>
void SortByDigits(Element* elements, Element* spare, int64_t count, bool moves) {
  const auto finish = [&](const Element* from, Element* to) {
    if (from != to) std::copy(from, from + count, to);
  };
  Element* to = moves ? spare : elements;
  if (count <= kFew) {
    Insert(elements, count);
    return finish(elements, to);
  }
  const auto [differing, are_sorted] = Differences(elements, count);
  if (are_sorted) return finish(elements, to);
  const Digit digit = Digit::Of(differing, count);
  std::array<uint32_t, (1 << kMaxDigitBits) + 1> ends;
  std::fill_n(ends.begin(), digit.mask + 2, 0);
  for (int64_t i = 0; i < count; ++i) ++ends[digit(elements[i]) + 1];
  const uint32_t most = *std::max_element(ends.begin(), ends.begin() + digit.mask + 2);
  for (uint32_t value = 0; value <= digit.mask; ++value) ends[value + 1] += ends[value];
  // Where each value begins becomes where it ends.
  for (int64_t i = 0; i < count; ++i) spare[ends[digit(elements[i])]++] = elements[i];
  if (digit.shift == 0) return finish(spare, to);
  if (most <= kFew) {
    Insert(spare, count);  // none is far from its place
    return finish(spare, to);
  }
  int64_t begin = 0;
  for (uint32_t value = 0; value <= digit.mask; ++value) {
    const int64_t end = ends[value];
    if (end > begin) SortByDigits(spare + begin, elements + begin, end - begin, !moves);
    begin = end;
  }
}

// The same of many, on all threads: pieces of them are divided by the highest digit, then values of it are sorted.
template <typename Element>
void SortInParallel(Element* elements, Element* spare, int64_t count, bool moves, const Parallel& parallel) {
  const int64_t threads = std::clamp<int64_t>(count / kMinPerThread, 1, parallel.threads());
  if (threads == 1 || count > INT32_MAX) return SortByDigits(elements, spare, count, moves);
  const int64_t size = CeilOfRatio(count, threads);
  struct Piece {
    Element differing = 0;
    bool are_sorted = true;
    std::array<uint32_t, 1 << kMaxDigitBits> places{};
  };
  std::vector<Piece> pieces(static_cast<size_t>(CeilOfRatio(count, size)));
  const auto for_pieces = [&](const auto& body) {
    parallel.For(static_cast<int64_t>(pieces.size()), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) body(pieces[i], i * size, std::min(count, (i + 1) * size));
    });
  };
  for_pieces([&](Piece& piece, int64_t begin, int64_t end) {
    // With the last one of the piece before, so that pieces are compared, too.
    const int64_t from = std::max<int64_t>(0, begin - 1);
    std::tie(piece.differing, piece.are_sorted) = Differences(elements + from, end - from);
    piece.differing |= elements[from] ^ elements[0];
  });
  Element differing = 0;
  bool are_sorted = true;
  for (const Piece& piece : pieces) {
    differing |= piece.differing;
    are_sorted &= piece.are_sorted;
  }
  if (are_sorted) {
    if (moves) std::copy(elements, elements + count, spare);
    return;
  }
  const Digit digit = Digit::Of(differing, count);
  for_pieces([&](Piece& piece, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++piece.places[digit(elements[i])];
  });
  std::vector<int64_t> begins;
  uint32_t place = 0;
  for (uint32_t value = 0; value <= digit.mask; ++value) {
    begins.push_back(place);
    for (Piece& piece : pieces) place += std::exchange(piece.places[value], place);
  }
  begins.push_back(count);
  for_pieces([&](Piece& piece, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) spare[piece.places[digit(elements[i])]++] = elements[i];
  });
  // Values with more elements than a thread's share are divided once more.
  std::vector<uint32_t> few;
  for (uint32_t value = 0; value <= digit.mask; ++value) {
    const int64_t begin = begins[value], own = begins[value + 1] - begin;
    if (own > size) {
      SortInParallel(spare + begin, elements + begin, own, !moves, parallel);
    } else if (own > 0) {
      few.push_back(value);
    }
  }
  const auto values = static_cast<int64_t>(few.size());
  constexpr int64_t kTurns = 16;
  parallel.For(values, CeilOfRatio(values, threads * kTurns), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = begins[few[i]];
      SortByDigits(spare + begin, elements + begin, begins[few[i] + 1] - begin, !moves);
    }
  });
}

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_RADIX_H_
