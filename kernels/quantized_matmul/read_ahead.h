// Prefetching of weights. A part of arithmetic_isa.cc and tiles_isa.cc.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_READ_AHEAD_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_READ_AHEAD_H_

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// So much is on its way from memory at least, some hundred nanoseconds of what one thread reads.
constexpr int64_t kBytesAhead = 1 << 14;

// Into the second-level cache: rows of weights often lie a multiple of the first-level one's ways apart, which would
// put what is fetched ahead in each other's place.
HLO_DISPATCH_INLINE void Fetch(const void* from) { __builtin_prefetch(from, /*rw=*/0, /*locality=*/2); }

// A matrix that is read tile by tile, `tile_rows` by `tile_bytes`, and fetched ahead of that line by line in the order
// of memory, in which the processor, too, guesses what follows.
class ReadAhead {
 public:
  // Nothing is fetched.
  ReadAhead() = default;
  ReadAhead(const void* first, int64_t rows, int64_t row_bytes, int64_t distance, int64_t tile_rows, int64_t tile_bytes)
      : first_(static_cast<const char*>(first)),
        rows_(rows),
        row_bytes_(row_bytes),
        distance_(distance),
        tile_rows_(tile_rows),
        tile_bytes_(tile_bytes) {
    // Rows that lie one behind the other are one.
    if (distance == row_bytes && tile_bytes >= row_bytes) {
      rows_ = 1;
      row_bytes_ = tile_bytes_ = rows * row_bytes;
    }
    BeginRow();
  }

  HLO_DISPATCH_INLINE void FetchLines(int64_t lines) {
    for (; lines > 0 && next_ < row_end_; --lines) {
      Fetch(next_);
      next_ += kLine;
      if (next_ >= row_end_) NextRow();
    }
  }

 private:
  // Rarely called, and kept out of the loops for their registers' sake.
  __attribute__((noinline)) void NextRow() {
    const int64_t tile_end = tile_begin_ + tile_rows_ < rows_ ? tile_begin_ + tile_rows_ : rows_;
    if (++row_ == tile_end) {
      column_ += tile_bytes_;
      if (column_ >= row_bytes_) {
        column_ = 0;
        tile_begin_ = tile_end;
      }
      row_ = tile_begin_;
    }
    BeginRow();
  }

  void BeginRow() {
    const char* const row = first_ + row_ * distance_;
    next_ = row + column_;
    row_end_ = row_ >= rows_ ? next_ : row + (column_ + tile_bytes_ < row_bytes_ ? column_ + tile_bytes_ : row_bytes_);
  }

  const char* first_ = nullptr;
  int64_t rows_ = 0, row_bytes_ = 0, distance_ = 0, tile_rows_ = 0, tile_bytes_ = 0;
  int64_t row_ = 0, column_ = 0, tile_begin_ = 0;  // where it is
  const char *next_ = nullptr, *row_end_ = nullptr;
};

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_READ_AHEAD_H_
