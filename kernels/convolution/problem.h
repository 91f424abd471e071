// A direct convolution as a call's attributes describe it, always in three spatial dimensions.
#ifndef HLO_DISPATCH_CONVOLUTION_PROBLEM_H_
#define HLO_DISPATCH_CONVOLUTION_PROBLEM_H_

#include <array>
#include <cstdint>

#include "common/attributes.h"
#include "common/strided_array.h"

namespace hlo_dispatch::convolution {

using Space = std::array<int64_t, 3>;

struct Problem {
  // Throws Failure(kUnsupported) for what this kernel has nothing for.
  explicit Problem(const Attributes& attributes);

  StridedArray source_array, weights_array, destination_array;
  int64_t images, groups, outputs, inputs;  // channels of one group
  Space source, kernel, result;             // sizes
  Space strides, dilations, padding;        // of the window; 1 is dense; in front
  // Distances in elements.
  int64_t source_image, source_channel, result_image, result_channel, weights_group, weights_output, weights_input;
  Space source_space, result_space, weights_space;
  bool is_reversed;  // the weights' window is read back to front

  bool is_depthwise() const { return inputs == 1 && outputs == 1 && groups > 1; }
  // Whether the channels of source and result lie side by side.
  bool has_channels_last() const { return is_depthwise() && source_channel == 1 && result_channel == 1; }
  int64_t window() const { return kernel[0] * kernel[1] * kernel[2]; }
  double multiply_adds() const;
};

}  // namespace hlo_dispatch::convolution

#endif  // HLO_DISPATCH_CONVOLUTION_PROBLEM_H_
