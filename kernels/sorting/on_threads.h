// Vectorized quicksort on all threads.
#ifndef HLO_DISPATCH_SORTING_ON_THREADS_H_
#define HLO_DISPATCH_SORTING_ON_THREADS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/parallel.h"
#include "common/rounding.h"
#include "sorting/quicksort.h"

namespace hlo_dispatch::sorting {

// Elements that are worth another thread.
inline constexpr int64_t kMinPerThread = 1 << 14;

// Sorts numbers, none of whose threads waits long for another: pieces of them are divided by bounds from a sample, each
// part is put together from all pieces and sorted.
//
// Args:
//   sorted, memory: for `count` numbers, and for twice as many.
//   read(to, begin, end): writes unsorted numbers of these places.
//   finish(begin, end): uses those of `sorted`, which are in order.
template <typename T, typename Read, typename Finish>
void SortOnThreads(const NumberSort<T>& kernel, T* sorted, T* memory, int64_t count, const Parallel& parallel,
                   const Read& read, const Finish& finish) {
  const int64_t threads = std::clamp<int64_t>(count / kMinPerThread, 1, parallel.threads());
  if (threads == 1) {
    read(sorted, 0, count);
    kernel.sort(sorted, memory, count, false);
    return finish(0, count);
  }
  // So many for each thread that their sizes even out, and so many samples that they are alike.
  constexpr int64_t kPartsPerThread = 4, kSamplesPerPart = 32;
  int64_t parts = 2;
  while (parts < threads * kPartsPerThread) parts *= 2;
  std::vector<T> samples(static_cast<size_t>(parts * kSamplesPerPart)), spare(samples.size()), bounds;
  uint64_t state = 1;
  for (T& sample : samples) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto place = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(count));
    read(&sample, place, place + 1);
  }
  kernel.sort(samples.data(), spare.data(), static_cast<int64_t>(samples.size()), false);
  for (int64_t part = 1; part < parts; ++part) bounds.push_back(samples[part * kSamplesPerPart - 1]);

  T* halves[] = {memory, memory + count};
  const int64_t size = CeilOfRatio(count, threads), pieces = CeilOfRatio(count, size);
  std::vector<int64_t> begins(static_cast<size_t>(pieces * (parts + 1)));
  parallel.For(pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t begin = piece * size, own = std::min(size, count - begin);
      read(halves[0] + begin, begin, begin + own);
      kernel.divide(halves[0] + begin, halves[1] + begin, own, bounds.data(), parts, &begins[piece * (parts + 1)]);
    }
  });
  std::vector<int64_t> ends;
  for (int64_t part = 0, end = 0; part < parts; ++part) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t* own = &begins[piece * (parts + 1) + part];
      end += own[1] - own[0];
    }
    ends.push_back(end);
  }
  const auto for_parts = [&](const auto& body) {
    parallel.For(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) body(part, part == 0 ? 0 : ends[part - 1], ends[part]);
    });
  };
  for_parts([&](int64_t part, int64_t begin, int64_t) {
    T* to = sorted + begin;
    const T* half = halves[__builtin_popcountll(static_cast<unsigned long long>(part)) % 2];
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t* own = &begins[piece * (parts + 1) + part];
      to = std::copy(half + piece * size + own[0], half + piece * size + own[1], to);
    }
  });
  for_parts([&](int64_t, int64_t begin, int64_t end) {
    kernel.sort(sorted + begin, memory + begin, end - begin, false);
    finish(begin, end);
  });
}

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_ON_THREADS_H_
