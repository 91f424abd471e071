#include "lapack/blocked.h"

#include <algorithm>
#include <limits>

#include "common/failure.h"
#include "common/rounding.h"
#include "lapack/blocked_avx512.h"
#include "lapack/panels.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

// Block size: columns that are factored or solved before the trailing matrix is updated. A panel of them stays in the
// second-level cache, and whole panels of either type make up a block.
constexpr int64_t kBlock = 192;
// Columns of the trailing matrix that one thread updates at a time.
constexpr int64_t kStrip = 64;
// Panels of right-hand sides that one thread solves at a time, so that each coefficient is read once for all.
constexpr int64_t kMaxPanels = 4;
constexpr int64_t kNone = std::numeric_limits<int64_t>::max() / 2;

// --- Cholesky -------------------------------------------------------------------------------------------------

// A block column of the lower factor, from the diagonal down, packed in panels of `width` columns each.
template <typename T>
class BlockColumn {
 public:
  // Element (i, j) of the lower triangle is at a[i * row_stride + j * column_stride].
  BlockColumn(T* a, int64_t n, int64_t row_stride, int64_t column_stride)
      : a_(a),
        n_(n),
        row_stride_(row_stride),
        column_stride_(column_stride),
        panels_((n + kRows<T>)*std::min(kBlock, Padded(n))),
        triangles_(kBlock * kColumns) {}

  // Factors columns [first, last) and their rows below. Returns the first bad column's number, or n.
  int64_t Factor(int64_t first, int64_t last, const Parallel& parallel) {
    first_ = first;
    width_ = last - first;
    padded_ = Padded(width_);
    const int64_t panels = CeilOfRatio(n_ - first, kRows<T>);
    const int64_t upper = CeilOfRatio(width_, kRows<T>);
    for (int64_t p = 0; p < upper; ++p) Read(p);
    for (int64_t j = 0; j < padded_; j += kColumns) {
      for (int64_t p = j / kRows<T>; p < upper; ++p) {
        T* block = Panel(p) + j * kRows<T>;
        Subtract(block, Panel(p), j, Row(j), kRows<T>);
        T* triangle = triangles_.data() + j * kColumns;
        T saved[kColumns * kColumns];
        const bool is_diagonal = p == j / kRows<T>;
        const int64_t place = j % kRows<T>;
        const int64_t size = std::min(kColumns, width_ - j);
        if (is_diagonal) {
          const int64_t good = FactorTriangle(block, place, size, triangle);
          if (good < size) return first + j + good;
          SaveTriangle(block + place, saved);
        }
        SolveTriangle(block, triangle);
        if (is_diagonal) RestoreTriangle(saved, block + place);
      }
    }
    parallel.For(panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        if (p >= upper) {
          Read(p);
          for (int64_t j = 0; j < padded_; j += kColumns) {
            T* block = Panel(p) + j * kRows<T>;
            Subtract(block, Panel(p), j, Row(j), kRows<T>);
            SolveTriangle(block, triangles_.data() + j * kColumns);
          }
        }
        Unpack(Panel(p), At(p), row_stride_, column_stride_, Rows(p), width_, -p * kRows<T>);
      }
    });
    return n_;
  }

  // Updates the trailing matrix's lower triangle by the factored columns.
  void Update(const Parallel& parallel) const {
    const int64_t behind = n_ - first_ - width_;
    if (behind <= 0) return;
    const int64_t strips = CeilOfRatio(behind, kStrip);
    parallel.For(strips, 1, [&](int64_t begin, int64_t end) {
      // The long strips first, for load balance.
      for (int64_t s = begin; s < end; ++s) UpdateStrip(IsLower() ? s : strips - 1 - s);
    });
  }

 private:
  bool IsLower() const { return row_stride_ == 1; }
  T* Panel(int64_t p) const { return panels_.data() + p * kRows<T> * padded_; }
  // The second operand of the update: eight rows of the factor, column by column.
  const T* Row(int64_t row) const { return Panel(row / kRows<T>) + row % kRows<T>; }
  int64_t Rows(int64_t p) const { return std::min(kRows<T>, n_ - first_ - p * kRows<T>); }
  T* At(int64_t p) const { return a_ + (first_ + p * kRows<T>)*row_stride_ + first_ * column_stride_; }
  void Read(int64_t p) { Pack(Panel(p), At(p), row_stride_, column_stride_, Rows(p), width_, padded_); }

  static void SaveTriangle(const T* from, T* saved) {
    for (int64_t q = 0; q < kColumns; ++q) {
      for (int64_t r = q; r < kColumns; ++r) saved[q * kColumns + r] = from[q * kRows<T> + r];
    }
  }
  static void RestoreTriangle(const T* saved, T* to) {
    for (int64_t q = 0; q < kColumns; ++q) {
      for (int64_t r = q; r < kColumns; ++r) to[q * kRows<T> + r] = saved[q * kColumns + r];
    }
  }

  // Column-major: of the factor where it is lower, of its transpose where it is upper. Both are the same sums, on one
  // side of the diagonal or the other.
  void UpdateStrip(int64_t strip) const {
    const int64_t leading = IsLower() ? column_stride_ : row_stride_;
    const int64_t begin = width_ + strip * kStrip;  // counted from first_, as panels' rows are
    const int64_t end = std::min(n_ - first_, begin + kStrip);
    const int64_t panels = CeilOfRatio(n_ - first_, kRows<T>);
    const int64_t first_panel = (IsLower() ? begin : width_) / kRows<T>;
    const int64_t last_panel = IsLower() ? panels : (end - 1) / kRows<T> + 1;
    for (int64_t p = first_panel; p < last_panel; ++p) {
      const int64_t row = p * kRows<T>;
      for (int64_t column = begin; column < end; column += kColumns) {
        const int64_t ahead = column - row;
        if (IsLower() ? ahead >= Rows(p) : ahead + kColumns <= 0) continue;
        T* c = a_ + (first_ + row) + (first_ + column) * leading;
        SubtractFrom(c, leading, Panel(p), width_, Row(column), kRows<T>, Rows(p), std::min(kColumns, end - column),
                     IsLower() ? ahead : kNone, IsLower() ? -kNone : ahead);
      }
    }
  }

  T* a_;
  int64_t n_, row_stride_, column_stride_;
  int64_t first_ = 0, width_ = 0, padded_ = 0;
  Buffer<T> panels_;
  Buffer<T> triangles_;
};

template <typename T>
void Factor(char uplo, int64_t n, void* a, int64_t leading, int* info, const Parallel& parallel) {
  BlockColumn<T> columns(static_cast<T*>(a), n, uplo == 'L' ? 1 : leading, uplo == 'L' ? leading : 1);
  *info = 0;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t bad = columns.Factor(first, std::min(n, first + kBlock), parallel);
    if (bad < n) {
      *info = static_cast<int>(bad + 1);
      return;
    }
    columns.Update(parallel);
  }
}

// --- triangular solve -------------------------------------------------------------------------------------------

// A lower triangular matrix, packed for the solve: panels of eight rows, column by column, and at the end of each the
// triangle on the diagonal with the reciprocals of the diagonal.
template <typename T>
class Coefficients {
 public:
  // Element (i, j) is at a[i * row_stride + j * column_stride].
  Coefficients(const T* a, int64_t n, int64_t row_stride, int64_t column_stride, bool unit, const Parallel& parallel)
      : values_(Start(CeilOfRatio(n, kColumns))) {
    const int64_t grain = std::max<int64_t>(1, CeilOfRatio(n, kColumns) / (8 * parallel.threads()));
    parallel.For(CeilOfRatio(n, kColumns), grain, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kColumns;
        const int64_t rows = std::min(kColumns, n - first);
        const T* from = a + first * row_stride;
        T* to = values_.data() + Start(block);
        if (rows < kColumns) std::fill(to, to + kColumns * (first + kColumns), T(0));
        if (column_stride == 1 || column_stride == -1) {
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < first; ++c) to[c * kColumns + r] = from[r * row_stride + c * column_stride];
          }
        } else {
          for (int64_t c = 0; c < first; ++c) {
            for (int64_t r = 0; r < rows; ++r) to[c * kColumns + r] = from[r * row_stride + c * column_stride];
          }
        }
        T* triangle = to + kColumns * first;
        std::fill(triangle, triangle + kColumns * kColumns, T(0));
        for (int64_t r = 0; r < kColumns; ++r) {
          const T* row = from + r * row_stride + first * column_stride;
          for (int64_t c = 0; c < r && r < rows; ++c) triangle[r * kColumns + c] = row[c * column_stride];
          triangle[r * kColumns + r] = unit || r >= rows ? T(1) : T(1) / row[r * column_stride];
        }
      }
    });
  }

  const T* Rows(int64_t row, int64_t column) const {
    return values_.data() + Start(row / kColumns) + column * kColumns;
  }
  const T* Triangle(int64_t row) const { return Rows(row, row); }

 private:
  // Elements before a block: those before it have kColumns, 2 kColumns, … columns.
  static int64_t Start(int64_t block) { return kColumns * kColumns * block * (block + 1) / 2; }

  Buffer<T> values_;
};

// How many columns at the front of a panel are 0, in whole blocks of sums: a solution is 0 as long as its right-hand
// side is. That of a triangular or unit matrix is so for half of all columns.
template <typename T>
int64_t LeadingZeros(const T* panel, int64_t columns) {
  const T* first = std::find_if(panel, panel + kRows<T> * columns, [](T value) { return value != 0; });
  return (first - panel) / (kRows<T> * kColumns) * kColumns;
}

// Panels per task: the more the better, as long as no thread is idle.
int64_t PanelsPerTask(int64_t panels, int64_t threads) {
  int64_t best = 1;
  const auto longest = [&](int64_t count) { return CeilOfRatio(CeilOfRatio(panels, count), threads) * count; };
  for (int64_t count = 2; count <= kMaxPanels; ++count) {
    if (longest(count) <= longest(best)) best = count;
  }
  return best;
}

// Solves z · gᵀ = z for some panels of n columns each, the first `zeros` of which are 0.
template <typename T>
void SolvePanels(T* z, int64_t panels, int64_t n, int64_t zeros, const Coefficients<T>& g) {
  const int64_t size = kRows<T> * n;
  for (int64_t first = zeros; first < n; first += kBlock) {
    const int64_t last = std::min(n, first + kBlock);
    for (int64_t j = first; j < n; j += kColumns) {
      const int64_t depth = std::min(j, last) - first;
      for (int64_t p = 0; p < panels; ++p) {
        T* block = z + p * size + j * kRows<T>;
        Subtract(block, z + p * size + first * kRows<T>, depth, g.Rows(j, first), kColumns);
        if (j < last) SolveTriangle(block, g.Triangle(j));
      }
    }
  }
}

template <typename T>
void Solve(char side, char uplo, bool transposed, bool unit, int64_t m, int64_t n, const void* a, int64_t leading,
           const void* b, int64_t b_row_stride, int64_t b_column_stride, void* x, int64_t x_row_stride,
           int64_t x_column_stride, const Parallel& parallel) {
  // Every right-hand side is a row of z in z · gᵀ = b: on the left, columns of x are; on the right, rows are, and
  // the matrix is transposed.
  const bool left = side == 'L';
  const int64_t size = left ? m : n;
  const int64_t sides = left ? n : m;
  const bool by_columns = left ? !transposed : transposed;
  int64_t row_stride = by_columns ? 1 : leading;
  int64_t column_stride = by_columns ? leading : 1;
  int64_t b_side = left ? b_column_stride : b_row_stride, b_along = left ? b_row_stride : b_column_stride;
  int64_t x_side = left ? x_column_stride : x_row_stride, x_along = left ? x_row_stride : x_column_stride;
  auto* matrix = static_cast<const T*>(a);
  auto* from = static_cast<const T*>(b);
  auto* to = static_cast<T*>(x);
  // g is lower where a is and it is not transposed; otherwise it is, counted from the end.
  if ((uplo == 'L') != by_columns) {
    matrix += (size - 1) * (row_stride + column_stride);
    from += (size - 1) * b_along;
    to += (size - 1) * x_along;
    row_stride = -row_stride;
    column_stride = -column_stride;
    b_along = -b_along;
    x_along = -x_along;
  }
  const Coefficients<T> g(matrix, size, row_stride, column_stride, unit, parallel);
  const int64_t padded = Padded(size);
  const int64_t panels = CeilOfRatio(sides, kRows<T>);
  const int64_t per_task = PanelsPerTask(panels, parallel.threads());
  parallel.For(CeilOfRatio(panels, per_task), 1, [&](int64_t begin, int64_t end) {
    const Buffer<T> z(per_task * kRows<T> * padded);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task * per_task;
      const int64_t count = std::min(per_task, panels - first);
      int64_t zeros = padded;
      for (int64_t p = 0; p < count; ++p) {
        const int64_t row = (first + p) * kRows<T>;
        Pack(z.data() + p * kRows<T> * padded, from + row * b_side, b_side, b_along, std::min(kRows<T>, sides - row),
             size, padded);
        zeros = std::min(zeros, LeadingZeros(z.data() + p * kRows<T> * padded, padded));
      }
      SolvePanels(z.data(), count, padded, zeros, g);
      for (int64_t p = 0; p < count; ++p) {
        const int64_t row = (first + p) * kRows<T>;
        Unpack(z.data() + p * kRows<T> * padded, to + row * x_side, x_side, x_along, std::min(kRows<T>, sides - row),
               size, -kNone);
      }
    }
  });
}

}  // namespace

void Check(const Scalar& scalar) {
  if (scalar.is_complex()) Unsupported("real matrices only");
}

Potrf FindPotrf(const Scalar& scalar) {
  Check(scalar);
  return scalar.bytes == 4 ? Factor<float> : Factor<double>;
}

Trsm FindTrsm(const Scalar& scalar) {
  Check(scalar);
  return scalar.bytes == 4 ? Solve<float> : Solve<double>;
}

}  // namespace hlo_dispatch::lapack::blocked
