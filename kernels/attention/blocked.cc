#include "attention/blocked.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/task.h"
#include "attention/tiling.h"
#include "common/processor.h"
#include "common/rounding.h"

namespace hlo_dispatch::attention {

namespace {

// So many multiply-adds, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 19;

// Combines the partial results of one row's splits (split-K).
void Combine(const Shared& s, const float* parts, int64_t distance, const Matrix& destination, int64_t row,
             std::vector<float>& sums) {
  const int64_t width = s.problem.width();
  float peak = -std::numeric_limits<float>::infinity(), total = 0;
  for (int64_t i = 0; i < s.tiling.splits; ++i) peak = std::max(peak, parts[i * distance]);
  std::fill(sums.begin(), sums.end(), 0.0f);
  for (int64_t i = 0; i < s.tiling.splits; ++i) {
    const float* part = parts + i * distance;
    const float factor = part[0] == peak ? 1.0f : std::exp(part[0] - peak);
    total += factor * part[1];
    for (int64_t c = 0; c < width; ++c) sums[static_cast<size_t>(c)] += factor * part[2 + c];
  }
  const Matrix to = BlockAt(destination, row, 0);
  s.arithmetic.put(sums.data(), width, 1.0f / total, const_cast<char*>(to.first), to.type, to.column_bytes);
}

bool IsCausal(const Problem& problem) {
  return problem.may_skip && std::any_of(problem.steps.begin(), problem.steps.end(),
                                         [](const Step& step) { return step.kind == StepKind::kCausal; });
}

}  // namespace

const Arithmetic& BestArithmetic() {
  if (HasAvx512Bf16()) return avx512_bf16::kArithmetic;
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

bool TakesPairs(const Problem& problem, const Arithmetic& arithmetic) {
  return arithmetic.has_pairs && !IsDirect(problem) && problem.query.type == ElementType::kBF16 &&
         problem.key.type == ElementType::kBF16 && problem.value.type == ElementType::kBF16;
}

void Attend(const Problem& problem, const Arithmetic& arithmetic, const RoutineBuffers& buffers,
            const Parallel& parallel) {
  const double work = static_cast<double>(problem.batch) * static_cast<double>(problem.queries()) *
                      static_cast<double>(problem.keys()) * static_cast<double>(problem.depth() + problem.width());
  const int64_t threads = parallel.ThreadsFor(work, kMinPerThread);
  const bool is_direct = IsDirect(problem), pairs = TakesPairs(problem, arithmetic);
  const bool scales_first = !problem.steps.empty() && problem.steps.front().kind == StepKind::kScale;
  const Shared shared{problem,
                      arithmetic,
                      TilingOf(problem, arithmetic, threads),
                      is_direct,
                      pairs,
                      pairs ? CeilOfRatio(problem.depth(), 2) : problem.depth(),
                      scales_first ? problem.steps.front().value : 1.0f,
                      scales_first ? size_t{1} : size_t{0},
                      buffers};
  const Tiling& tiling = shared.tiling;
  const int64_t blocks = problem.batch * tiling.tasks_per_batch;
  const int64_t row_floats = problem.width() + 2;
  const int64_t rows = problem.batch * problem.queries();
  std::vector<float> parts(tiling.splits > 1 ? static_cast<size_t>(tiling.splits * rows * row_floats) : 0);
  // The long ones first, for load balance.
  const bool from_behind = IsCausal(problem);
  const int64_t count = blocks * tiling.splits;
  parallel.For(count, threads == 1 ? count : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t split = i % tiling.splits, block = i / tiling.splits;
      const int64_t batch = from_behind ? block % problem.batch : block / tiling.tasks_per_batch;
      const int64_t number =
          from_behind ? tiling.tasks_per_batch - 1 - block / problem.batch : block % tiling.tasks_per_batch;
      const int64_t first = number * tiling.queries, queries = std::min(tiling.queries, problem.queries() - first);
      const int64_t first_key = split * tiling.keys_per_split;
      Task task(shared, batch, first, queries, first_key, std::min(problem.keys(), first_key + tiling.keys_per_split));
      task.Run();
      if (tiling.splits == 1) {
        task.Finish(problem.destination.At(buffers.results[0], batch));
      } else {
        task.StorePartial(parts.data() + (split * rows + batch * problem.queries() + first) * row_floats);
      }
    }
  });
  if (tiling.splits == 1) return;
  std::vector<float> sums(static_cast<size_t>(RoundUpTo(problem.width(), arithmetic.lanes)));
  for (int64_t row = 0; row < rows; ++row) {
    Combine(shared, parts.data() + row * row_floats, rows * row_floats,
            problem.destination.At(buffers.results[0], row / problem.queries()), row % problem.queries(), sums);
  }
}

}  // namespace hlo_dispatch::attention
