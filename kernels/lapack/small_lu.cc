// LU of small matrices in vectors of rows.
#include <algorithm>

#include "common/rounding.h"
#include "lapack/blocked.h"
#include "lapack/panels.h"
#include "lapack/small_lu_avx512.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

template <typename T>
void Factor(int64_t m, int64_t n, void* a, int64_t leading, int* pivots, int* info, const Parallel&) {
  const int64_t padded = RoundUpTo(m, kSmallLanes<T>);
  auto* matrix = static_cast<T*>(a);
  if (padded == m) {
    FactorSmall(m, n, matrix, leading, pivots, info);
    return;
  }
  const Buffer<T> copy(padded * n);
  for (int64_t j = 0; j < n; ++j) {
    std::copy(matrix + j * leading, matrix + j * leading + m, copy.data() + j * padded);
    std::fill(copy.data() + j * padded + m, copy.data() + (j + 1) * padded, T(0));  // nothing that slows vectors down
  }
  FactorSmall(m, n, copy.data(), padded, pivots, info);
  for (int64_t j = 0; j < n; ++j) {
    std::copy(copy.data() + j * padded, copy.data() + j * padded + m, matrix + j * leading);
  }
}

}  // namespace

Getrf FindSmallGetrf(const Scalar& scalar, int64_t rows) {
  Check(scalar);
  if (rows > kMaxSmallRows) return nullptr;
  return scalar.bytes == 4 ? Factor<float> : Factor<double>;
}

}  // namespace hlo_dispatch::lapack::blocked
