#include "lapack/lu_panels_avx512.h"

#include "lapack/blocked_avx512.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

template <typename T>
struct Wide;
template <>
struct Wide<float> {
  typedef int32_t Number;
};
template <>
struct Wide<double> {
  typedef int64_t Number;
};

template <typename T>
constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));
constexpr int kVectors = 3;

template <typename T>
struct Types {
  typedef T Vector __attribute__((vector_size(64)));
  typedef T Anywhere __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
  typedef typename Wide<T>::Number Numbers __attribute__((vector_size(64)));
  // As many numbers as a tile has columns.
  typedef T Row __attribute__((vector_size(8 * sizeof(T)), aligned(alignof(T)), may_alias));
};
static_assert(kColumns == 8, "as many as a row of u has");

template <typename T>
T* At(const PackedColumns<T>& columns, int64_t row, int64_t column) {
  return columns.panels + row / kRows<T> * kRows<T> * columns.padded + column * kRows<T> + row % kRows<T>;
}

template <typename T>
T Size(T x) {
  return x < 0 ? -x : x;
}

template <typename T>
int64_t FirstNan(const PackedColumns<T>& columns, int64_t row, int64_t column) {
  while (true) {
    const T value = *At(columns, row, column);
    if (value != value) return row;
    ++row;
  }
}

// The row of the largest number of a column from its diagonal down, or of the first NaN.
template <typename T>
int64_t Pivot(const PackedColumns<T>& columns, int64_t column) {
  using Vector = typename Types<T>::Vector;
  using Numbers = typename Types<T>::Numbers;
  const int64_t behind = (column / kRows<T> + 1) * kRows<T>;
  int64_t found = column;
  T largest = Size(*At(columns, column, column));
  bool has_nan = largest != largest;
  for (int64_t row = column + 1; row < behind && row < columns.rows; ++row) {
    const T size = Size(*At(columns, row, column));
    has_nan |= size != size;
    if (size > largest) largest = size, found = row;
  }
  Vector sizes[kVectors];
  Numbers places[kVectors], unordered{};
  for (int v = 0; v < kVectors; ++v) sizes[v] = Vector{} - 1, places[v] = Numbers{};
  for (int64_t row = behind; row < columns.rows; row += kRows<T>) {
    const T* from = At(columns, row, column);
    for (int v = 0; v < kVectors; ++v) {
      const Vector value = *reinterpret_cast<const typename Types<T>::Anywhere*>(from + v * kLanes<T>);
      const Vector size = value < 0 ? -value : value;
      const Numbers is_larger = size > sizes[v];
      sizes[v] = is_larger ? size : sizes[v];
      places[v] = is_larger ? Numbers{} + static_cast<typename Wide<T>::Number>(row) : places[v];
      unordered |= size != size;
    }
  }
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) has_nan |= unordered[lane] != 0;
  // Below the last row there are zeros, or NaN where a row has been subtracted that is not finite.
  if (has_nan) {
    const int64_t row = FirstNan(columns, column, column);
    if (row < columns.rows) return row;
  }
  for (int v = 0; v < kVectors; ++v) {
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
      const int64_t row = places[v][lane] + v * kLanes<T> + lane;
      if (row >= columns.rows) continue;
      const T size = sizes[v][lane];
      if (size > largest || (size == largest && row < found)) largest = size, found = row;
    }
  }
  return found;
}

// Subtracts a row's multiples from the rows below it, in the columns behind.
template <typename T>
void SubtractRow(const PackedColumns<T>& columns, int64_t column, int64_t behind) {
  using Vector = typename Types<T>::Vector;
  using Anywhere = typename Types<T>::Anywhere;
  const T pivot = *At(columns, column, column);
  T factors[kColumns];
  for (int64_t c = 0; c < behind; ++c) factors[c] = *At(columns, column, column + 1 + c);
  // What is left of the panel that the row is in.
  int64_t row = column + 1;
  for (; row % kRows<T> != 0; ++row) {
    T* from = At(columns, row, column);
    *from /= pivot;
    for (int64_t c = 0; c < behind; ++c) from[(1 + c) * kRows<T>] -= *from * factors[c];
  }
  for (; row < columns.rows; row += kRows<T>) {
    T* from = At(columns, row, column);
    Vector multiples[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      auto* place = reinterpret_cast<Anywhere*>(from + v * kLanes<T>);
      *place = multiples[v] = *place / pivot;
    }
    for (int64_t c = 0; c < behind; ++c) {
      for (int v = 0; v < kVectors; ++v) {
        auto* place = reinterpret_cast<Anywhere*>(from + (1 + c) * kRows<T> + v * kLanes<T>);
        *place -= multiples[v] * factors[c];
      }
    }
  }
}

}  // namespace

template <typename T>
int64_t Eliminate(const PackedColumns<T>& columns, int64_t first, int64_t count, int* pivots) {
  int64_t bad = -1;
  for (int64_t column = first; column < first + count; ++column) {
    const int64_t pivot = Pivot(columns, column);
    pivots[column] = static_cast<int>(pivot);
    if (pivot != column) {
      T *one = At(columns, column, 0), *other = At(columns, pivot, 0);
      for (int64_t c = 0; c < columns.width; ++c) {
        const T kept = one[c * kRows<T>];
        one[c * kRows<T>] = other[c * kRows<T>];
        other[c * kRows<T>] = kept;
      }
    }
    if (*At(columns, column, column) == 0) {
      if (bad < 0) bad = column;
      continue;
    }
    SubtractRow(columns, column, first + count - column - 1);
  }
  return bad;
}

template <typename T>
void SolveUnitLower(const PackedColumns<T>& columns, int64_t size, T* u) {
  using Row = typename Types<T>::Row;
  auto* rows = reinterpret_cast<Row*>(u);
  for (int64_t k = 0; k < size; k += kColumns) {
    const T* l = At(columns, k, 0);  // rows from k on, column by column
    Row sums[kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kColumns; ++r) sums[r] = rows[k + r];
    for (int64_t i = 0; i < k; ++i) {
      const Row known = rows[i];
#pragma GCC unroll 8
      for (int r = 0; r < kColumns; ++r) sums[r] -= known * l[i * kRows<T> + r];
    }
#pragma GCC unroll 8
    for (int r = 1; r < kColumns; ++r) {
#pragma GCC unroll 8
      for (int s = 0; s < r; ++s) sums[r] -= sums[s] * l[(k + s) * kRows<T> + r];
    }
#pragma GCC unroll 8
    for (int r = 0; r < kColumns; ++r) rows[k + r] = sums[r];
  }
}

#define HLO_DISPATCH_LU_PANELS(T)                                              \
  template int64_t Eliminate(const PackedColumns<T>&, int64_t, int64_t, int*); \
  template void SolveUnitLower(const PackedColumns<T>&, int64_t, T*);
HLO_DISPATCH_LU_PANELS(float)
HLO_DISPATCH_LU_PANELS(double)

}  // namespace hlo_dispatch::lapack::blocked
