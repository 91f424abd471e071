// Convolutions in vectors of positions: rows of the source are copied with their padding, each once for a block of
// results.
#ifndef HLO_DISPATCH_CONVOLUTION_ROWS_H_
#define HLO_DISPATCH_CONVOLUTION_ROWS_H_

#include <cstdint>

#include "common/parallel.h"
#include "convolution/arithmetic.h"
#include "convolution/problem.h"

namespace hlo_dispatch::convolution {

// How a convolution is divided.
struct Blocks {
  // Throws Failure(kUnsupported) where copies of rows would be out of proportion.
  Blocks(const Problem& problem, int64_t narrow, int64_t wide);

  // Results that share rows are channels, or else rows of one channel: so many rows apart (row_step), which meet
  // weights so many rows apart (weights_step).
  bool shares_channels;
  int64_t row_step, weights_step;
  bool shares_rows;
  int64_t rows, columns;  // of a block of results
  int64_t source_rows;    // that it reads, of one channel and depth
  int64_t phases;         // copies of a row, each of every strides-th position
  int64_t phase_length;
  int64_t width;  // of a tile
};

// Weights lie as (G, O/G, I/G, spatial...), dense and in order.
template <typename T>
void ConvolveRows(const Problem& problem, const Blocks& blocks, const Loops<T>& loops, const T* source,
                  const T* weights, T* result, const Parallel& parallel);

extern template void ConvolveRows(const Problem&, const Blocks&, const Loops<float>&, const float*, const float*,
                                  float*, const Parallel&);
extern template void ConvolveRows(const Problem&, const Blocks&, const Loops<double>&, const double*, const double*,
                                  double*, const Parallel&);

}  // namespace hlo_dispatch::convolution

#endif  // HLO_DISPATCH_CONVOLUTION_ROWS_H_
