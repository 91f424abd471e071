// The arithmetic of blocked_lu.cc. As blocked_avx512.cc, lu_panels_avx512.cc is compiled for processors this one may
// not be, and includes nothing but such headers.
#ifndef HLO_DISPATCH_LAPACK_LU_PANELS_AVX512_H_
#define HLO_DISPATCH_LAPACK_LU_PANELS_AVX512_H_

#include <cstdint>

namespace hlo_dispatch::lapack::blocked {

// Columns of a matrix from its diagonal down, packed in panels of kRows rows with `padded` columns each.
template <typename T>
struct PackedColumns {
  T* panels;
  int64_t padded, rows, width;
};

// Factors columns [first, first + count), at most kColumns, which those ahead of them have been subtracted from: for
// each the pivot (the largest number, or the first NaN), the exchange of two rows in all columns, the multipliers, and
// the update of the columns behind it up to the last of these. pivots[column] is a row of the packed ones. Returns the
// first column whose pivot is 0, or -1.
template <typename T>
int64_t Eliminate(const PackedColumns<T>& columns, int64_t first, int64_t count, int* pivots);

// u (size x kColumns, by rows, with memory for whole blocks of eight rows) = l⁻¹ · u, where l is the unit lower
// triangle of the first `size` packed columns.
template <typename T>
void SolveUnitLower(const PackedColumns<T>& columns, int64_t size, T* u);

}  // namespace hlo_dispatch::lapack::blocked

#endif  // HLO_DISPATCH_LAPACK_LU_PANELS_AVX512_H_
