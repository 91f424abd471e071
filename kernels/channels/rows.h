// An image of channels as rows: what this folder's kernels read and write of operands in oneDNN's order, (N, C, x...).
#ifndef HLO_DISPATCH_CHANNELS_ROWS_H_
#define HLO_DISPATCH_CHANNELS_ROWS_H_

#include <cstdint>

#include "channels/arithmetic.h"
#include "common/strided_array.h"

namespace hlo_dispatch::channels {

// Dense, channels-last: channels vary fastest, then space, then images.
struct Rows {
  int64_t images;
  int64_t positions;  // rows of each image
  int64_t channels;

  // Throws Failure(kUnsupported) for other layouts, and for other types than f32 and bf16.
  static Rows Of(const StridedArray& array);
};

// The fastest that this processor has.
const Arithmetic& BestArithmetic();
const Loops& LoopsFor(const Arithmetic& arithmetic, ElementType type);

// Throws Failure(kUnsupported) where own loops do not run on oneDNN's threads: others would have to be woken between
// two calls.
void CheckThreads();

}  // namespace hlo_dispatch::channels

#endif  // HLO_DISPATCH_CHANNELS_ROWS_H_
