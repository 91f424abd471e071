// Matrix product that skips zeros: whether a matrix is triangular is found out while its panels are packed.
#include <algorithm>
#include <vector>

#include "common/rounding.h"
#include "lapack/blocked.h"
#include "lapack/blocked_avx512.h"
#include "lapack/panels.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

// Depth of a tile's sum (the k block): a panel of each side of that depth stays in the second-level cache.
template <typename T>
constexpr int64_t kDepth = 1536 / static_cast<int64_t>(sizeof(T));
// Panels of a that are multiplied by each panel of b while that is in the cache.
constexpr int64_t kTilePanels = 2;

// A matrix packed in panels of kRows rows.
template <typename T>
class Panels {
 public:
  Panels(int64_t panels, int64_t columns)
      : columns_(columns), values_(panels * kRows<T> * columns), extents_(static_cast<size_t>(panels)) {}

  void Read(int64_t panel, const T* from, int64_t row_stride, int64_t column_stride, int64_t rows) {
    T* to = values_.data() + panel * kRows<T> * columns_;
    Pack(to, from, row_stride, column_stride, rows, columns_, columns_);
    extents_[static_cast<size_t>(panel)] = ExtentOf(to, columns_);
  }
  const T* Columns(int64_t panel, int64_t first) const {
    return values_.data() + (panel * columns_ + first) * kRows<T>;
  }
  const Extent& extent(int64_t panel) const { return extents_[static_cast<size_t>(panel)]; }

 private:
  int64_t columns_;
  Buffer<T> values_;
  std::vector<Extent> extents_;
};

struct Range {
  int64_t first, last;
};

// The range of the sum in which neither panel is 0 throughout; times what is not finite, 0 counts.
Range Intersection(const Extent& a, const Extent& b, int64_t depth) {
  Range range{0, depth};
  if (b.is_finite) range = {a.first, a.last};
  if (a.is_finite) range = {std::max(range.first, b.first), std::min(range.last, b.last)};
  return range.first < range.last ? range : Range{0, 0};
}

template <typename T>
void Multiply(int64_t m, int64_t n, int64_t k, const void* a, int64_t a_row_stride, int64_t a_column_stride,
              const void* b, int64_t b_row_stride, int64_t b_column_stride, void* c, int64_t leading,
              const Parallel& parallel) {
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  auto* product = static_cast<T*>(c);
  constexpr int64_t height = kRows<T>;
  const int64_t panels_a = CeilOfRatio(m, height), panels_b = CeilOfRatio(n, height);
  Panels<T> columns(panels_b, k);
  parallel.For(panels_b, 1, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      columns.Read(j, right + j * height * b_column_stride, b_column_stride, b_row_stride,
                   std::min(height, n - j * height));
    }
  });
  parallel.For(CeilOfRatio(panels_a, kTilePanels), 1, [&](int64_t begin, int64_t end) {
    Panels<T> rows(kTilePanels, k);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task * kTilePanels;
      const int64_t count = std::min(kTilePanels, panels_a - first);
      for (int64_t p = 0; p < count; ++p) {
        const int64_t row = (first + p) * height;
        rows.Read(p, left + row * a_row_stride, a_row_stride, a_column_stride, std::min(height, m - row));
      }
      // Once even where there is nothing to sum: the product is 0 then.
      for (int64_t depth = 0; depth < std::max<int64_t>(1, k); depth += kDepth<T>) {
        for (int64_t j = 0; j < panels_b; ++j) {
          for (int64_t p = 0; p < count; ++p) {
            const Range whole = Intersection(rows.extent(p), columns.extent(j), k);
            const int64_t from = std::max(depth, whole.first);
            if (from >= depth + kDepth<T>) continue;
            const int64_t to = std::max(from, std::min(depth + kDepth<T>, whole.last));
            // Every element is written once, if only as the sum of nothing.
            const bool fresh = from == whole.first;
            if (from == to && !fresh) continue;
            const int64_t row = (first + p) * height;
            for (int64_t column = j * height; column < std::min(n, (j + 1) * height); column += kColumns) {
              AddTo(product + row + column * leading, leading, rows.Columns(p, from), to - from,
                    columns.Columns(j, from) + column % height, height, std::min(height, m - row),
                    std::min(kColumns, n - column), fresh);
            }
          }
        }
      }
    }
  });
}

}  // namespace

Product FindProduct(const Scalar& scalar) {
  Check(scalar);
  return scalar.bytes == 4 ? Multiply<float> : Multiply<double>;
}

}  // namespace hlo_dispatch::lapack::blocked
