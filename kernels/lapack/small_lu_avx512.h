// LU factorization with partial pivoting of a matrix in the first-level cache. As blocked_avx512.cc, small_lu_avx512.cc
// is compiled for processors this one may not be, and includes nothing but this.
#ifndef HLO_DISPATCH_LAPACK_SMALL_LU_AVX512_H_
#define HLO_DISPATCH_LAPACK_SMALL_LU_AVX512_H_

#include <cstdint>

namespace hlo_dispatch::lapack::blocked {

inline constexpr int64_t kMaxSmallRows = 64;
template <typename T>
inline constexpr int64_t kSmallLanes = 64 / static_cast<int64_t>(sizeof(T));

// LAPACK's getrf of m x n, m at most kMaxSmallRows. Columns are `leading` apart, which is at least m rounded up to
// whole vectors of kSmallLanes; rows from m on may be anything, and become so.
template <typename T>
void FactorSmall(int64_t m, int64_t n, T* a, int64_t leading, int* pivots, int* info);

}  // namespace hlo_dispatch::lapack::blocked

#endif  // HLO_DISPATCH_LAPACK_SMALL_LU_AVX512_H_
