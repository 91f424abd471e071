// Division of a quantized matmul into pieces, which any thread computes.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_PIECES_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_PIECES_H_

#include <algorithm>
#include <cstdint>

#include "common/epilogue.h"
#include "common/parallel.h"
#include "common/rounding.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

// A part of the result, and of its sums: over rows [first, last) of the weights, the `part`-th such.
struct Piece {
  Tile tile;
  int64_t part, first, last;
};

struct Pieces {
  int64_t rows, columns, depth;
  int64_t height, width, length;  // of a piece
  int64_t parts() const { return CeilOfRatio(depth, length); }
  int64_t count() const { return CeilOfRatio(rows, height) * CeilOfRatio(columns, width) * parts(); }
  Piece At(int64_t number) const {
    const int64_t part = number % parts(), across = CeilOfRatio(columns, width);
    const int64_t row = number / parts() / across * height, column = number / parts() % across * width;
    return {{row, std::min(rows, row + height), column, std::min(columns, column + width)},
            part,
            part * length,
            std::min(depth, (part + 1) * length)};
  }
};

// All rows by as many columns as each thread gets. Where rows of weights are short, parts of the depth come first:
// each is contiguous memory. How many there are does not depend on the threads, so that sums do not either.
Pieces PanelsOfColumns(const Problem& problem, const Parallel& parallel);

// All rows by whole panels of prepacked columns.
Pieces PanelsOfPackedColumns(const Problem& problem, int64_t packed_bytes, const Parallel& parallel);

// Whole tiles of columns; narrower pieces, and then lower ones, of a multiple of `grain` rows, where there are too few.
Pieces PiecesOfTiles(const Problem& problem, int64_t tile_columns, int64_t grain, const Parallel& parallel);

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_PIECES_H_
