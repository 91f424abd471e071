// LU of large matrices: block columns, each packed and factored as Cholesky's are, with the rows exchanged in all
// others and subtracted from those behind, a strip of columns to a thread.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/rounding.h"
#include "lapack/blocked.h"
#include "lapack/blocked_avx512.h"
#include "lapack/lu_panels_avx512.h"
#include "lapack/panels.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

// Columns that are factored before those behind them are updated, by one thread, and that one updates at a time: whole
// panels of either type.
constexpr int64_t kBlock = 48;
constexpr int64_t kNone = std::numeric_limits<int64_t>::max() / 2;

// A matrix, column-major, on its way. While some threads update what is behind a block column, one of them factors the
// next one.
template <typename T>
class Lu {
 public:
  Lu(int64_t m, int64_t n, T* a, int64_t leading, int* pivots)
      : m_(m), n_(n), count_(std::min(m, n)), a_(a), leading_(leading), pivots_(pivots), one_(Size()), other_(Size()) {}

  // Returns the number, from 1 on, of the first column whose pivot is 0, or 0.
  int Factor(const Parallel& parallel) {
    Block block = FactorBlock(0, one_);
    for (bool is_odd = false; block.end() < n_; is_odd = !is_odd) {
      const int64_t next = block.end(), width = std::max<int64_t>(0, std::min(kBlock, count_ - next));
      const int64_t ahead = width > 0 ? 1 : 0, strips = CeilOfRatio(n_ - next - width, kBlock);
      Block found{next, {}};
      parallel.For(ahead + strips, 1, [&](int64_t begin, int64_t end) {
        const Buffer<T> u(kBlock * kBlock);
        for (int64_t i = begin; i < end; ++i) {
          if (i < ahead) {
            Update(block, next, width, u.data());
            found = FactorBlock(next, is_odd ? one_ : other_);
          } else {
            const int64_t column = next + width + (i - ahead) * kBlock;
            Update(block, column, std::min(kBlock, n_ - column), u.data());
          }
        }
      });
      if (ahead == 0) break;
      block = found;
    }
    // The columns that were factored before a pivot was found, too.
    parallel.For(CeilOfRatio(count_, kBlock), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t behind = std::min(count_, (i + 1) * kBlock);
        for (int64_t column = i * kBlock; column < behind; ++column) Exchange(column, behind, count_);
      }
    });
    return bad_;
  }

 private:
  // A block column that is factored, and packed from the diagonal down.
  struct Block {
    int64_t first;
    PackedColumns<T> packed;

    int64_t end() const { return first + packed.width; }
    int64_t panels() const { return CeilOfRatio(packed.rows, kRows<T>); }
    T* Panel(int64_t p) const { return packed.panels + p * kRows<T> * packed.padded; }
    int64_t Rows(int64_t p) const { return std::min(kRows<T>, packed.rows - p * kRows<T>); }
    T* At(int64_t row, int64_t column) const { return Panel(row / kRows<T>) + column * kRows<T> + row % kRows<T>; }
  };

  int64_t Size() const { return (m_ + kRows<T>)*kBlock; }
  T* At(int64_t row, int64_t column) const { return a_ + row + column * leading_; }

  Block FactorBlock(int64_t first, const Buffer<T>& memory) {
    const int64_t width = std::min(kBlock, count_ - first);
    const Block block{first, {memory.data(), Padded(width), m_ - first, width}};
    for (int64_t p = 0; p < block.panels(); ++p) {
      Pack(block.Panel(p), At(first + p * kRows<T>, first), int64_t{1}, leading_, block.Rows(p), width,
           block.packed.padded);
    }
    for (int64_t j = 0; j < width; j += kColumns) {
      if (j > 0) SubtractFirst(block, j);
      const int64_t bad = Eliminate(block.packed, j, std::min(kColumns, width - j), pivots_ + first);
      if (bad_ == 0 && bad >= 0) bad_ = static_cast<int>(first + bad + 1);
    }
    for (int64_t p = 0; p < block.panels(); ++p) {
      Unpack(block.Panel(p), At(first + p * kRows<T>, first), int64_t{1}, leading_, block.Rows(p), width, -kNone);
    }
    for (int64_t i = first; i < block.end(); ++i) pivots_[i] += static_cast<int>(first + 1);
    return block;
  }

  // Subtracts the first j columns of the block from kColumns behind them.
  static void SubtractFirst(const Block& block, int64_t j) {
    T u[kBlock * kColumns];
    for (int64_t k = 0; k < j; ++k) {
      for (int64_t q = 0; q < kColumns; ++q) u[k * kColumns + q] = *block.At(k, j + q);
    }
    SolveUnitLower(block.packed, j, u);
    for (int64_t p = j / kRows<T>; p < block.panels(); ++p) {
      Subtract(block.Panel(p) + j * kRows<T>, block.Panel(p), j, u, kColumns);
    }
    for (int64_t k = 0; k < j; ++k) {
      for (int64_t q = 0; q < kColumns; ++q) *block.At(k, j + q) = u[k * kColumns + q];
    }
  }

  // Exchanges rows in columns behind a block, solves for their upper part, and subtracts what is below.
  void Update(const Block& block, int64_t first, int64_t count, T* u) const {
    const int64_t width = block.packed.width;
    for (int64_t c = 0; c < count; ++c) Exchange(first + c, block.first, block.end());
    for (int64_t c = 0; c < count; c += kColumns) {
      const int64_t size = std::min(kColumns, count - c);
      T* to = u + c * kBlock;
      std::fill(to, to + kBlock * kColumns, T(0));
      for (int64_t q = 0; q < size; ++q) {
        for (int64_t k = 0; k < width; ++k) to[k * kColumns + q] = *At(block.first + k, first + c + q);
      }
      SolveUnitLower(block.packed, width, to);
      for (int64_t q = 0; q < size; ++q) {
        for (int64_t k = 0; k < width; ++k) *At(block.first + k, first + c + q) = to[k * kColumns + q];
      }
    }
    // A block that has rows below is whole, and so are the panels of its upper part.
    for (int64_t p = CeilOfRatio(width, kRows<T>); p < block.panels(); ++p) {
      for (int64_t c = 0; c < count; c += kColumns) {
        SubtractFrom(At(block.first + p * kRows<T>, first + c), leading_, block.Panel(p), width, u + c * kBlock,
                     kColumns, block.Rows(p), std::min(kColumns, count - c), -kNone, -kNone);
      }
    }
  }

  // Exchanges the rows of one column as the pivots [first, last) say.
  void Exchange(int64_t column, int64_t first, int64_t last) const {
    T* values = At(0, column);
    for (int64_t i = first; i < last; ++i) std::swap(values[i], values[pivots_[i] - 1]);
  }

  int64_t m_, n_, count_;
  T* a_;
  int64_t leading_;
  int* pivots_;
  Buffer<T> one_, other_;
  int bad_ = 0;
};

template <typename T>
void Factor(int64_t m, int64_t n, void* a, int64_t leading, int* pivots, int* info, const Parallel& parallel) {
  *info = Lu<T>(m, n, static_cast<T*>(a), leading, pivots).Factor(parallel);
}

}  // namespace

Getrf FindLargeGetrf(const Scalar& scalar) {
  Check(scalar);
  return scalar.bytes == 4 ? Factor<float> : Factor<double>;
}

}  // namespace hlo_dispatch::lapack::blocked
