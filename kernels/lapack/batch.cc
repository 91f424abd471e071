#include "lapack/batch.h"

#include <algorithm>

namespace hlo_dispatch::lapack {

namespace {

// OpenBLAS and oneMKL begin to use threads of their own at about this size.
constexpr int64_t kMaxSmallElements = 96 * 96;
// Least work of a task, some microseconds: worth waking a thread for.
constexpr int64_t kElementsPerTask = 1 << 14;

}  // namespace

void ForBatch(const Provider& provider, const Matrix& matrices, const Parallel& parallel,
              const std::function<void(int64_t, const Parallel&)>& one) {
  const int64_t batch = matrices.batch(), elements = matrices.rows * matrices.columns;
  const Parallel alone;
  if (batch > 1 && elements <= kMaxSmallElements) {
    const int64_t least = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, elements));
    const int64_t grain = std::max(least, batch / (8 * parallel.threads()));
    parallel.For(batch, grain, [&](int64_t begin, int64_t end) {
      const ThreadLimit limit(provider, 1);
      for (int64_t i = begin; i < end; ++i) one(i, alone);
    });
    return;
  }
  const ThreadLimit limit(provider, elements <= kMaxSmallElements ? 1 : parallel.threads());
  for (int64_t i = 0; i < batch; ++i) one(i, parallel);
}

}  // namespace hlo_dispatch::lapack
