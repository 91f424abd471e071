// Loop over the matrices of a batch.
#ifndef HLO_DISPATCH_LAPACK_BATCH_H_
#define HLO_DISPATCH_LAPACK_BATCH_H_

#include <cstdint>
#include <functional>

#include "common/parallel.h"
#include "common/provider.h"
#include "lapack/matrix.h"

namespace hlo_dispatch::lapack {

// Calls one(index, parallel) for every matrix. Small matrices are distributed over XLA's threads, each of which runs
// the library single-threaded; large ones are computed one after another, each by all of the library's threads.
void ForBatch(const Provider& provider, const Matrix& matrices, const Parallel& parallel,
              const std::function<void(int64_t, const Parallel&)>& one);

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_BATCH_H_
