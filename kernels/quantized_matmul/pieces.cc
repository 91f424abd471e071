#include "quantized_matmul/pieces.h"

#include "quantized_matmul/packed_layout.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

// So many bytes of weights, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 18;
// Or so many products, with tiles.
constexpr double kMinMultiplyAddsPerThread = 1 << 20;
// Rows of weights of so many bytes at most are divided among threads by the depth. Half a row each, which the processor
// cannot guess what follows, were read at 70 % (bf16), 63 % (s8) and 41 % (s4) of a stream on a Xeon, whole ones at 86
// %, 77 % and 52 %. A part takes more sums, which one thread adds up, and is to take ten microseconds at least.
constexpr int64_t kLongRow = 8192, kDepthParts = 4, kDepthGrain = 64, kMaxRowsOfParts = 4;
constexpr int64_t kFewestBytesOfParts = kDepthParts << 17;
// Columns of a panel: a whole number of the cache's lines, and enough of them to be fetched ahead.
constexpr int64_t kColumnGrain = 64, kMinColumns = 256;
// Of tiles, which a thread widens for all of these rows: half a line of the cache for weights of four bits.
constexpr int64_t kTiledColumns = 128, kFewestSharingTiles = 48;
// So many pieces for each thread, of which some are late.
constexpr int64_t kPiecesPerThread = 2;

}  // namespace

Pieces PanelsOfColumns(const Problem& problem, const Parallel& parallel) {
  const Weights& weights = problem.weights;
  const int64_t rows = problem.destination.rows, columns = weights.columns, depth = weights.depth;
  const int64_t bytes = WeightBytes(weights.type, depth * columns);
  const bool is_deep = weights.has_contiguous_columns && rows <= kMaxRowsOfParts &&
                       WeightBytes(weights.type, columns) <= kLongRow && bytes >= kFewestBytesOfParts;
  const int64_t grain = problem.scales.has_value() ? problem.scales->group : kDepthGrain;
  const int64_t length = is_deep ? RoundUpTo(CeilOfRatio(depth, kDepthParts), grain) : depth;
  const int64_t threads = parallel.ThreadsFor(static_cast<double>(bytes), kMinPerThread);
  const int64_t across = CeilOfRatio(threads, CeilOfRatio(depth, length));
  if (across == 1) return {rows, columns, depth, rows, columns, length};
  const int64_t shared = std::max(kMinColumns, CeilOfRatio(columns, across));
  return {rows, columns, depth, rows, RoundUpTo(shared, kColumnGrain), length};
}

Pieces PanelsOfPackedColumns(const Problem& problem, int64_t packed_bytes, const Parallel& parallel) {
  const int64_t rows = problem.destination.rows, columns = problem.weights.columns, depth = problem.weights.depth;
  const int64_t threads = parallel.ThreadsFor(static_cast<double>(packed_bytes), kMinPerThread);
  const int64_t pieces = threads == 1 ? 1 : threads * kPiecesPerThread;
  return {rows, columns, depth, rows, RoundUpTo(CeilOfRatio(columns, pieces), kPanelColumns), depth};
}

Pieces PiecesOfTiles(const Problem& problem, int64_t tile_columns, int64_t grain, const Parallel& parallel) {
  const int64_t rows = problem.destination.rows, columns = problem.weights.columns, depth = problem.weights.depth;
  const auto work = static_cast<double>(rows * depth * columns);
  const int64_t threads = parallel.ThreadsFor(work, kMinMultiplyAddsPerThread);
  if (threads == 1) return {rows, columns, depth, rows, columns, depth};
  const int64_t wanted = threads * kPiecesPerThread;
  const int64_t width = std::min(kTiledColumns, RoundUpTo(CeilOfRatio(columns, wanted), tile_columns));
  const int64_t down =
      std::min(CeilOfRatio(wanted, CeilOfRatio(columns, width)), std::max<int64_t>(1, rows / kFewestSharingTiles));
  return {rows, columns, depth, RoundUpTo(CeilOfRatio(rows, down), grain), width, depth};
}

}  // namespace hlo_dispatch::quantized_matmul
