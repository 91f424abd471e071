// Windows of the convolution families: attributes, and checks of the operands' ranks.
#ifndef HLO_DISPATCH_ONEDNN_WINDOW_H_
#define HLO_DISPATCH_ONEDNN_WINDOW_H_

#include <cstdint>
#include <vector>

#include "common/attributes.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

// One entry per spatial dimension. Dilations as oneDNN counts them: 0 is dense.
struct Window {
  std::vector<int64_t> strides, dilations, padding_low, padding_high;
};

Window ReadWindow(const Attributes& attributes, size_t spatial);
// Throws unless a window of `sizes` over the last dimensions of `from` has the positions that are the last dimensions
// of `to`. The library checks it too, in integers of 32 bits that attributes can make overflow.
void CheckWindow(const Window& window, const std::vector<int64_t>& sizes, const Tensor& from, const Tensor& to);
// The same window over one more dimension in front, of size one.
Window WithUnitDimension(Window window);

// A convolution's window and operands. Those of a one-dimensional call have one more spatial dimension, of size
// one: the sums are the same, and oneDNN's depthwise kernels want two (ten times faster: 0.05 against 0.7 ms for
// 256 channels of 1000).
struct ConvolutionCall {
  Window window;
  CallOperands operands;
  bool one_dimensional;

  // Reads and checks everything but a bias. `roles` names the attributes of the operands and the result, and
  // `weights` which of them is shaped (O, I, spatial...) or, with groups, (G, O/G, I/G, spatial...).
  static ConvolutionCall Read(const Attributes& attributes, const Roles& roles, const char* weights);
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_WINDOW_H_
