#include "attention/tiling.h"

#include <unistd.h>

#include <algorithm>

#include "common/rounding.h"

namespace hlo_dispatch::attention {

namespace {

constexpr int64_t kCacheIfUnknown = 256 << 10;
constexpr int64_t kMaxKeys = 512;
constexpr int64_t kMinKeys = 64;
constexpr int64_t kMaxQueries = 480;
constexpr int64_t kMinQueries = 48;
constexpr int64_t kTileQueries = 48;
// Blocks of queries for each thread, so that one that begins late or is slow keeps no other one waiting.
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kMinKeysPerSplit = 128;
constexpr int64_t kMaxDirectQueries = 8;

// The processor is asked once: in a virtual machine it is slow to answer.
int64_t CacheBytes() {
  static const int64_t known = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return known > 0 ? known : kCacheIfUnknown;
}

}  // namespace

bool IsDirect(const Problem& problem) { return problem.queries() <= kMaxDirectQueries; }

Tiling TilingOf(const Problem& problem, const Arithmetic& arithmetic, int64_t threads) {
  const int64_t row_bytes =
      4 * (RoundUpTo(problem.depth(), arithmetic.lanes) + RoundUpTo(problem.width(), arithmetic.lanes));
  Tiling tiling{};
  const int64_t max_keys = std::clamp(CacheBytes() / 3 / row_bytes, kMinKeys, kMaxKeys);
  // Blocks of one size, instead of a small one at the end.
  tiling.keys = RoundUpTo(CeilOfRatio(problem.keys(), CeilOfRatio(problem.keys(), max_keys)), arithmetic.lanes);

  const int64_t max_queries = std::clamp(CacheBytes() / 3 / row_bytes, kMinQueries, kMaxQueries);
  const int64_t wanted = CeilOfRatio(kTasksPerThread * threads, problem.batch);
  int64_t count = std::max(CeilOfRatio(problem.queries(), max_queries),
                           std::min(wanted, CeilOfRatio(problem.queries(), kMinQueries)));
  // Pieces of one size, too, which are whole tiles of any arithmetic.
  tiling.queries = std::min(problem.queries(), RoundUpTo(CeilOfRatio(problem.queries(), count), kTileQueries));
  tiling.tile_queries = std::min(tiling.queries, kTileQueries);
  tiling.tasks_per_batch = CeilOfRatio(problem.queries(), tiling.queries);

  const int64_t tasks = problem.batch * tiling.tasks_per_batch;
  tiling.splits =
      tasks >= threads ? 1 : std::clamp(problem.keys() / kMinKeysPerSplit, int64_t{1}, CeilOfRatio(threads, tasks));
  if (tiling.splits > 1) {
    tiling.keys = std::min(tiling.keys, RoundUpTo(CeilOfRatio(problem.keys(), tiling.splits), arithmetic.lanes));
  }
  return tiling;
}

}  // namespace hlo_dispatch::attention
