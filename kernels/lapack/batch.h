// A family's work on every matrix of a batch.
#ifndef HLO_DISPATCH_LAPACK_BATCH_H_
#define HLO_DISPATCH_LAPACK_BATCH_H_

#include <cstdint>
#include <functional>

#include "common/parallel.h"
#include "common/provider.h"
#include "lapack/matrix.h"

namespace hlo_dispatch::lapack {

// Calls one(index, parallel) for every matrix. Small matrices are shared out to XLA's threads, each of which runs
// the library on its own alone; large ones come one after another, and the library uses its threads for each.
void ForBatch(const Provider& provider, const Matrix& matrices, const Parallel& parallel,
              const std::function<void(int64_t, const Parallel&)>& one);

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_BATCH_H_
