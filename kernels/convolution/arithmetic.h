// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_CONVOLUTION_ARITHMETIC_H_
#define HLO_DISPATCH_CONVOLUTION_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::convolution {

// Results that share what they read of the source, in the tile that is in registers.
inline constexpr int64_t kSharing = 4;

// A row of the source, and the row of weights that it meets.
template <typename T>
struct Term {
  const T* row;
  const T* weights;
};

// Sums of some terms for a tile: `sharing` results (1 or kSharing), each in `width` positions (Loops::narrow or wide).
template <typename T>
struct RowTile {
  const Term<T>* terms;
  int64_t count;
  const int64_t* places;  // in a row, of what the k-th weight meets at the tile's first position
  int64_t window;         // weights in a row
  int64_t first;          // position of the tile in a row
  int64_t shift;          // of the first result's weights from the term's
  int64_t distance;       // of the next result's weights from those
  int64_t sharing, width;
  T* sums;  // `width` of each result
};

template <typename T>
struct Loops {
  int64_t narrow, wide;  // positions of a tile

  // sums[r][p] += sum over terms and k of row[places[k] + first + p] * weights[shift + r * distance + k].
  void (*add_rows)(const RowTile<T>& tile);
  // to[p * to_step + c] = sum over t of from[t][p * from_step + c] * weights[t][c], for c in [0, channels). Weights of
  // one place lie `channels` behind those of the one before it.
  void (*multiply_channels)(const T* const* from, const T* const* weights, int64_t count, int64_t positions,
                            int64_t from_step, int64_t to_step, int64_t channels, T* to);
};

struct Arithmetic {
  const char* name;
  Loops<float> singles;
  Loops<double> doubles;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::convolution

#endif  // HLO_DISPATCH_CONVOLUTION_ARITHMETIC_H_
