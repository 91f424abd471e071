// hlo_dispatch.own.convolution
//
//   dst[n, o, x] = sum over i, k of src[n, i, x * strides + k * (dilations + 1) - padding_low] * weights[o, i, k]
//
// A direct convolution, with the operands and attributes of onednn.convolution, neither bias nor post-ops: of f64,
// which oneDNN does not compute, and depthwise ones of f32 that it unfolds into products or copies to another layout
// (gaps in the window, NCHW). Vectors hold positions; or channels, where these lie side by side. With weights_reversed
// = 1 the k-th weight is the operand's (K-1-k)-th in every spatial dimension. Operands: src, weights. Results: dst,
// scratch.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "convolution/arithmetic.h"
#include "convolution/channels.h"
#include "convolution/problem.h"
#include "convolution/rows.h"

namespace hlo_dispatch::convolution {

namespace {

const Arithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

template <typename T>
const Loops<T>& LoopsOf(const Arithmetic& arithmetic) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return arithmetic.doubles;
  } else {
    return arithmetic.singles;
  }
}

// (G, O/G, I/G, spatial...), or with channels last (spatial..., G), dense and in order.
template <typename T>
std::unique_ptr<T[]> OrderedWeights(const Problem& problem, const T* from) {
  const int64_t window = problem.window(), channels = problem.groups * problem.outputs * problem.inputs;
  std::unique_ptr<T[]> ordered(new T[static_cast<size_t>(channels * window)]);
  const bool is_last = problem.has_channels_last();
  const Space &size = problem.kernel, &stride = problem.weights_space;
  std::vector<int64_t> places;  // of the window's elements, in the order in which they are met
  places.reserve(static_cast<size_t>(window));
  for (int64_t i = 0; i < size[0]; ++i) {
    for (int64_t j = 0; j < size[1]; ++j) {
      for (int64_t k = 0; k < size[2]; ++k) places.push_back(i * stride[0] + j * stride[1] + k * stride[2]);
    }
  }
  if (problem.is_reversed) std::reverse(places.begin(), places.end());
  const int64_t step = is_last ? channels : 1, next = is_last ? 1 : window;
  T* to = ordered.get();
  for (int64_t group = 0; group < problem.groups; ++group) {
    for (int64_t output = 0; output < problem.outputs; ++output) {
      const T* first = from + group * problem.weights_group + output * problem.weights_output;
      for (int64_t input = 0; input < problem.inputs; ++input, first += problem.weights_input, to += next) {
        for (size_t k = 0; k < places.size(); ++k) to[static_cast<int64_t>(k) * step] = first[places[k]];
      }
    }
  }
  return ordered;
}

class Convolution final : public Routine {
 public:
  Convolution(const Provider&, const Attributes& attributes) : problem_(attributes), arithmetic_(BestArithmetic()) {
    if (attributes.Has("weights_format") && attributes.Text("weights_format") == "packed") {
      Unsupported("own.convolution reads weights as they lie");
    }
    if (!problem_.has_channels_last()) {
      const auto& [narrow, wide] = is_double() ? Widths(arithmetic_.doubles) : Widths(arithmetic_.singles);
      blocks_.emplace(problem_, narrow, wide);
    }
    operands_ = {SpecOf(problem_.source_array), SpecOf(problem_.weights_array)};
    results_ = {SpecOf(problem_.destination_array), PlannedScratch(attributes)};
  }

  std::string implementation() const override {
    return std::string("direct:") + arithmetic_.name + (blocks_.has_value() ? ":positions" : ":channels");
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (is_double()) {
      Compute<double>(buffers, parallel);
    } else {
      Compute<float>(buffers, parallel);
    }
  }

 private:
  struct Pair {
    int64_t narrow, wide;
  };
  template <typename T>
  static Pair Widths(const Loops<T>& loops) {
    return {loops.narrow, loops.wide};
  }

  bool is_double() const { return problem_.source_array.type == ElementType::kF64; }

  template <typename T>
  void Compute(const RoutineBuffers& buffers, const Parallel& parallel) const {
    const auto first = [](const StridedArray& array, const void* buffer) {
      return static_cast<const T*>(array.Begin(const_cast<void*>(buffer)));
    };
    const T* const source = first(problem_.source_array, buffers.operands[0]);
    const std::unique_ptr<T[]> weights = OrderedWeights(problem_, first(problem_.weights_array, buffers.operands[1]));
    T* const result = static_cast<T*>(buffers.results[0]);
    const Loops<T>& loops = LoopsOf<T>(arithmetic_);
    if (blocks_.has_value()) {
      ConvolveRows(problem_, *blocks_, loops, source, weights.get(), result, parallel);
    } else {
      ConvolveChannels(problem_, loops, source, weights.get(), result, parallel);
    }
  }

  Problem problem_;
  const Arithmetic& arithmetic_;
  std::optional<Blocks> blocks_;  // none: vectors hold channels
};

const Family<Convolution, kOwnEverywhere> family("convolution");

}  // namespace

}  // namespace hlo_dispatch::convolution
