#include "lapack/matrix.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <limits>
#include <utility>

#include "common/checked.h"
#include "common/failure.h"
#include "common/rounding.h"
#include "lapack/transpose.h"

namespace hlo_dispatch::lapack {

namespace {

// A tile of the widest type is 16 KiB: it stays in the first-level cache.
constexpr int64_t kTile = 32;
// Below so many bytes a copy is over before another thread has woken up.
constexpr int64_t kParallelBytes = 1 << 19;

// A view of one matrix, transposed if the destination is column-major: the destination's rows are contiguous in it.
template <typename T>
struct RowView {
  T* data;
  int64_t row_stride;
  int64_t column_stride;
  T* Row(int64_t row) const { return data + row * row_stride; }
};

template <typename T>
T Conjugated(T value) {
  return value;
}
template <typename T>
std::complex<T> Conjugated(std::complex<T> value) {
  return std::conj(value);
}

// A tile that is read in the order in which it lies in memory and then written in the other: each cache line is touched
// once, where plain loops would come back to it when it has been evicted.
template <typename T>
class Tile {
 public:
  // The elements in rows [row, row + rows) and columns [column, column + columns) of a view whose columns are
  // contiguous (row_stride == 1).
  void Read(const RowView<const T>& from, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    int64_t c = 0;
    if (rows == kTile) {
      for (; c + kSquare <= columns; c += kSquare) {
        for (int64_t r = 0; r < kTile; r += kSquare) {
          TransposeSquare(from.data + (column + c) * from.column_stride + row + r, from.column_stride, &elements_[r][c],
                          kTile);
        }
      }
    }
    for (; c < columns; ++c) {
      const T* source = from.data + (column + c) * from.column_stride + row;
      for (int64_t r = 0; r < rows; ++r) elements_[r][c] = source[r];
    }
  }
  T operator()(int64_t row, int64_t column) const { return elements_[row][column]; }

 private:
  T elements_[kTile][kTile];
};

template <typename T, typename Function>
void CopyRows(const RowView<const T>& from, const RowView<T>& to, int64_t first, int64_t last, int64_t length,
              const Function& function) {
  if (from.row_stride != 1) {
    for (int64_t r = first; r < last; ++r) {
      const T* source = from.Row(r);
      T* destination = to.Row(r);
      if (from.column_stride == 1) {
        for (int64_t c = 0; c < length; ++c) destination[c] = function(source[c]);
      } else {
        for (int64_t c = 0; c < length; ++c) destination[c] = function(source[c * from.column_stride]);
      }
    }
    return;
  }
  Tile<T> tile;
  for (int64_t r = first; r < last; r += kTile) {
    const int64_t rows = std::min(kTile, last - r);
    for (int64_t c = 0; c < length; c += kTile) {
      const int64_t columns = std::min(kTile, length - c);
      tile.Read(from, r, rows, c, columns);
      for (int64_t i = 0; i < rows; ++i) {
        T* destination = to.Row(r + i) + c;
        for (int64_t j = 0; j < columns; ++j) destination[j] = function(tile(i, j));
      }
    }
  }
}

// to = (from + transpose(from)) / 2. The result's order does not matter, so `from` has the order of `to`: its rows
// are contiguous.
template <typename T>
void SymmetriseRows(const RowView<const T>& from, const RowView<T>& to, int64_t first, int64_t last, int64_t length) {
  const RowView<const T> transposed{from.data, from.column_stride, from.row_stride};
  Tile<T> tile;
  for (int64_t r = first; r < last; r += kTile) {
    const int64_t rows = std::min(kTile, last - r);
    for (int64_t c = 0; c < length; c += kTile) {
      const int64_t columns = std::min(kTile, length - c);
      tile.Read(transposed, r, rows, c, columns);
      for (int64_t i = 0; i < rows; ++i) {
        const T* source = from.Row(r + i) + c;
        T* destination = to.Row(r + i) + c;
        for (int64_t j = 0; j < columns; ++j) destination[j] = (source[j] + tile(i, j)) * T(0.5);
      }
    }
  }
}

template <typename T>
void CopyTyped(const Matrix& from, const void* source, const Matrix& to, void* destination, Copying copying,
               const Parallel& parallel) {
  const bool by_column = to.is_column_major();
  RowView<const T> a{static_cast<const T*>(source), from.row_stride, from.column_stride};
  RowView<T> b{static_cast<T*>(destination), to.row_stride, to.column_stride};
  if (by_column) {
    std::swap(a.row_stride, a.column_stride);
    std::swap(b.row_stride, b.column_stride);
  }
  if (copying == Copying::kSymmetrised && !from.SameOrder(to)) std::swap(a.row_stride, a.column_stride);
  const int64_t count = by_column ? to.columns : to.rows;
  const int64_t length = by_column ? to.rows : to.columns;
  // Rows in whole tiles, about four pieces for each thread.
  const int64_t tiles = CeilOfRatio(count, kTile);
  const bool is_small = count * length * from.scalar.bytes < kParallelBytes;
  const int64_t grain = is_small ? tiles : std::max<int64_t>(1, tiles / (4 * parallel.threads()));
  parallel.For(tiles, grain, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kTile;
    const int64_t last = std::min(count, end * kTile);
    switch (copying) {
      case Copying::kPlain:
        return CopyRows(a, b, first, last, length, [](T value) { return value; });
      case Copying::kConjugated:
        return CopyRows(a, b, first, last, length, [](T value) { return Conjugated(value); });
      case Copying::kSymmetrised:
        return SymmetriseRows(a, b, first, last, length);
    }
  });
}

// Whether both have their elements at the same places, without gaps.
bool SameDense(const Matrix& a, const Matrix& b) {
  const bool same = a.row_stride == b.row_stride && a.column_stride == b.column_stride;
  return same && a.leading() == (a.is_column_major() ? a.rows : a.columns);
}

void CheckCount(const std::string& role, int64_t value) {
  if (value > std::numeric_limits<int>::max()) {
    Unsupported(role + ": " + std::to_string(value) + " exceeds LAPACK's integers");
  }
}

}  // namespace

int64_t Matrix::batch() const {
  int64_t count = 1;
  for (int64_t size : batch_dims) count *= size;
  return count;
}

int64_t Matrix::Offset(int64_t batch_index) const {
  int64_t offset = 0;
  for (size_t i = batch_dims.size(); i-- > 0;) {
    offset += batch_index % batch_dims[i] * batch_strides[i];
    batch_index /= batch_dims[i];
  }
  return offset * scalar.bytes;
}

int64_t Matrix::leading() const {
  // A matrix of one column has no distance between columns, but LAPACK checks it.
  return is_column_major() ? std::max({column_stride, rows, int64_t{1}}) : std::max({row_stride, columns, int64_t{1}});
}

BufferSpec Matrix::spec() const { return {role, scalar.type, batch() * rows * columns * scalar.bytes}; }

Matrix MatrixFromAttributes(const Attributes& attributes, const std::string& role) {
  const std::vector<int64_t> dims = attributes.Integers(role + "_dims");
  const std::vector<int64_t> strides = attributes.Integers(role + "_strides");
  const std::string what = "attributes '" + role + "_dims' and '" + role + "_strides'";
  if (dims.size() < 2 || strides.size() != dims.size()) {
    Invalid(what + ": expected as many of each, at least 2, got " + std::to_string(dims.size()) + " and " +
            std::to_string(strides.size()));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || strides[i] < 0) Invalid(what + ": expected no negative numbers");
  }
  CheckDense(dims, strides, what);
  const size_t batches = dims.size() - 2;
  Matrix matrix{role,
                ScalarFromAttributes(attributes),
                {dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(batches)},
                {strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(batches)},
                dims[batches],
                dims[batches + 1],
                strides[batches],
                strides[batches + 1]};
  const bool contiguous =
      matrix.rows <= 1 || matrix.columns <= 1 || matrix.row_stride == 1 || matrix.column_stride == 1;
  if (!contiguous) Invalid("attribute '" + role + "_strides': neither rows nor columns are contiguous");
  // A row or a column alone lies in memory as a dense one only if its own stride is 1.
  if (matrix.columns <= 1 && matrix.rows > 1 && matrix.row_stride != 1) {
    matrix.column_stride = 1;
  } else if (matrix.rows <= 1) {
    matrix.row_stride = 1;
  }
  // No element has a place in an empty one.
  if (Bytes(Elements(dims, what), matrix.scalar.bytes, what) == 0) {
    std::fill(matrix.batch_strides.begin(), matrix.batch_strides.end(), 0);
  }
  CheckCount(role, matrix.rows);
  CheckCount(role, matrix.columns);
  CheckCount(role, matrix.leading());
  return matrix;
}

BufferSpec VectorSpec(const std::string& role, xla::ffi::DataType type, int64_t bytes_per_element, int64_t count) {
  return {role, type, Bytes(count, bytes_per_element, role)};
}

void Copy(const Matrix& from, const void* source, const Matrix& to, void* destination, Copying copying,
          const Parallel& parallel) {
  if (copying == Copying::kPlain && SameDense(from, to)) {
    if (source != destination) {
      const int64_t bytes = from.rows * from.columns * from.scalar.bytes;
      const int64_t grain = bytes < kParallelBytes ? bytes : std::max<int64_t>(1, bytes / parallel.threads());
      parallel.For(bytes, grain, [&](int64_t begin, int64_t end) {
        std::memcpy(static_cast<char*>(destination) + begin, static_cast<const char*>(source) + begin,
                    static_cast<size_t>(end - begin));
      });
    }
    return;
  }
  switch (from.scalar.type) {
    case xla::ffi::DataType::F32:
      return CopyTyped<float>(from, source, to, destination, copying, parallel);
    case xla::ffi::DataType::F64:
      return CopyTyped<double>(from, source, to, destination, copying, parallel);
    case xla::ffi::DataType::C64:
      return CopyTyped<std::complex<float>>(from, source, to, destination, copying, parallel);
    default:
      return CopyTyped<std::complex<double>>(from, source, to, destination, copying, parallel);
  }
}

void Conjugate(const Matrix& matrix, void* address) {
  if (!matrix.scalar.is_complex()) return;
  const int64_t vectors = matrix.is_column_major() ? matrix.columns : matrix.rows;
  const int64_t length = matrix.is_column_major() ? matrix.rows : matrix.columns;
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t first = v * matrix.leading();
    for (int64_t i = 0; i < length; ++i) {
      if (matrix.scalar.bytes == 8) {
        auto& value = static_cast<std::complex<float>*>(address)[first + i];
        value = std::conj(value);
      } else {
        auto& value = static_cast<std::complex<double>*>(address)[first + i];
        value = std::conj(value);
      }
    }
  }
}

ColumnMajor::ColumnMajor(const Matrix& matrix, void* address)
    : result_(matrix), work_(matrix), address_(address), data_(address) {
  work_.row_stride = 1;
  work_.column_stride = std::max<int64_t>(1, matrix.rows);
  if (matrix.is_column_major() && matrix.leading() == work_.leading()) return;
  memory_.resize(static_cast<size_t>(matrix.rows * matrix.columns * matrix.scalar.bytes));
  data_ = memory_.data();
}

void ColumnMajor::Finish(const Parallel& parallel) const {
  if (data_ != address_) Copy(work_, data_, result_, address_, Copying::kPlain, parallel);
}

}  // namespace hlo_dispatch::lapack
