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

// Split-K: few queries, each block's visible keys in parts, whose partial results are combined.
class SplitKeys {
 public:
  explicit SplitKeys(const Shared& shared)
      : s_(shared),
        rows_(shared.problem.batch * shared.problem.queries()),
        row_floats_(shared.problem.width() + 2),
        parts_(static_cast<size_t>(shared.tiling.splits * rows_ * row_floats_)) {
    for (int64_t block = 0; block < Blocks(); ++block) keys_.push_back(VisibleTo(block));
  }

  void Run(const Parallel& parallel) {
    Attend(parallel);
    bool is_all = true;
    for (int64_t block = 0; block < Blocks(); ++block) {
      KeyRange& keys = keys_[static_cast<size_t>(block)];
      if (keys.end - keys.begin == s_.problem.keys() || HiddenVanish(block)) continue;
      keys = {0, s_.problem.keys()};
      is_all = false;
    }
    if (!is_all) Attend(parallel);
    std::vector<float> sums(static_cast<size_t>(RoundUpTo(s_.problem.width(), s_.arithmetic.lanes)));
    for (int64_t row = 0; row < rows_; ++row) Combine(row, sums);
  }

 private:
  int64_t Blocks() const { return s_.problem.batch * s_.tiling.tasks_per_batch; }
  int64_t FirstQuery(int64_t block) const { return block % s_.tiling.tasks_per_batch * s_.tiling.queries; }
  int64_t Queries(int64_t block) const { return std::min(s_.tiling.queries, s_.problem.queries() - FirstQuery(block)); }
  // Number of a block's first row among all.
  int64_t FirstRow(int64_t block) const {
    return block / s_.tiling.tasks_per_batch * s_.problem.queries() + FirstQuery(block);
  }
  float* Part(int64_t split, int64_t row) { return parts_.data() + (split * rows_ + row) * row_floats_; }

  KeyRange VisibleTo(int64_t block) const {
    const KeyRange all{0, s_.problem.keys()};
    if (!s_.problem.may_skip) return all;
    return VisibleKeys(s_.problem, s_.problem.OthersAt(s_.buffers, block / s_.tiling.tasks_per_batch),
                       FirstQuery(block), Queries(block), all, s_.arithmetic.lanes);
  }

  void Attend(const Parallel& parallel) {
    parallel.For(Blocks() * s_.tiling.splits, 1, [this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t split = i % s_.tiling.splits, block = i / s_.tiling.splits;
        const KeyRange& keys = keys_[static_cast<size_t>(block)];
        const int64_t size = RoundUpTo(CeilOfRatio(keys.end - keys.begin, s_.tiling.splits), s_.arithmetic.lanes);
        const int64_t first = std::min(keys.end, keys.begin + split * size);
        Task task(s_, block / s_.tiling.tasks_per_batch, FirstQuery(block), Queries(block),
                  {first, std::min(keys.end, first + size)});
        task.Run();
        task.StorePartial(Part(split, FirstRow(block)));
      }
    });
  }

  bool HiddenVanish(int64_t block) {
    for (int64_t row = FirstRow(block); row < FirstRow(block) + Queries(block); ++row) {
      const float peak = Peak(row);
      if (!Vanish(s_.problem, &peak, 1)) return false;
    }
    return true;
  }

  float Peak(int64_t row) {
    float peak = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < s_.tiling.splits; ++i) peak = std::max(peak, *Part(i, row));
    return peak;
  }

  void Combine(int64_t row, std::vector<float>& sums) {
    const int64_t width = s_.problem.width();
    const float peak = Peak(row);
    float total = 0;
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t i = 0; i < s_.tiling.splits; ++i) {
      const float* part = Part(i, row);
      const float factor = part[0] == peak ? 1.0f : std::exp(part[0] - peak);
      total += factor * part[1];
      for (int64_t c = 0; c < width; ++c) sums[static_cast<size_t>(c)] += factor * part[2 + c];
    }
    const int64_t queries = s_.problem.queries();
    const Matrix to = BlockAt(s_.problem.destination.At(s_.buffers.results[0], row / queries), row % queries, 0);
    s_.arithmetic.put(sums.data(), width, 1.0f / total, const_cast<char*>(to.first), to.type, to.column_bytes);
  }

  const Shared& s_;
  int64_t rows_, row_floats_;
  std::vector<float> parts_;
  std::vector<KeyRange> keys_;  // that each block attends to
};

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
  if (tiling.splits > 1) return SplitKeys(shared).Run(parallel);
  // The long ones first, for load balance.
  const bool from_behind = IsCausal(problem);
  const int64_t count = problem.batch * tiling.tasks_per_batch;
  parallel.For(count, threads == 1 ? count : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = from_behind ? i % problem.batch : i / tiling.tasks_per_batch;
      const int64_t number = from_behind ? tiling.tasks_per_batch - 1 - i / problem.batch : i % tiling.tasks_per_batch;
      const int64_t first = number * tiling.queries, queries = std::min(tiling.queries, problem.queries() - first);
      Task task(shared, batch, first, queries, {0, problem.keys()});
      task.Run();
      task.Finish(problem.destination.At(buffers.results[0], batch));
    }
  });
}

}  // namespace hlo_dispatch::attention
