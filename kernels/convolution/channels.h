// Depthwise convolutions of channels that lie side by side, in vectors of channels.
#ifndef HLO_DISPATCH_CONVOLUTION_CHANNELS_H_
#define HLO_DISPATCH_CONVOLUTION_CHANNELS_H_

#include "common/parallel.h"
#include "convolution/arithmetic.h"
#include "convolution/problem.h"

namespace hlo_dispatch::convolution {

// Weights lie as (spatial..., G), dense and in order.
template <typename T>
void ConvolveChannels(const Problem& problem, const Loops<T>& loops, const T* source, const T* weights, T* result,
                      const Parallel& parallel);

extern template void ConvolveChannels(const Problem&, const Loops<float>&, const float*, const float*, float*,
                                      const Parallel&);
extern template void ConvolveChannels(const Problem&, const Loops<double>&, const double*, const double*, double*,
                                      const Parallel&);

}  // namespace hlo_dispatch::convolution

#endif  // HLO_DISPATCH_CONVOLUTION_CHANNELS_H_
