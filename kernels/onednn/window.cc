#include "onednn/window.h"

#include <string>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

// Throws unless the ranks fit together; returns the number of spatial dimensions.
size_t CheckRanks(const Attributes& attributes, const Roles& roles, const std::string& weights) {
  const std::string first = roles.source;
  const size_t rank = attributes.Integers(first + "_dims").size();
  if (rank < 3 || rank > 5) {
    Invalid(first + ": expected 3 to 5 dimensions (batch, channels, 1 to 3 spatial), got " + std::to_string(rank));
  }
  for (const std::string role : {roles.weights, roles.destination}) {
    if (role == weights) continue;
    const size_t other = attributes.Integers(role + "_dims").size();
    if (other != rank) {
      Invalid(role + ": expected as many dimensions as " + first + " (" + std::to_string(rank) + "), got " +
              std::to_string(other));
    }
  }
  const size_t weights_rank = attributes.Integers(weights + "_dims").size();
  if (weights_rank != rank && weights_rank != rank + 1) {
    Invalid(weights + ": expected " + std::to_string(rank) + " dimensions, or " + std::to_string(rank + 1) +
            " with groups, got " + std::to_string(weights_rank));
  }
  return rank - 2;
}

// oneDNN's kernels work out offsets from all of these in integers of 32 bits.
constexpr int64_t kMaxInWindow = int64_t{1} << 24;

void CheckNumber(const std::string& attribute, int64_t value, int64_t least) {
  if (least <= value && value <= kMaxInWindow) return;
  Unsupported("attribute '" + attribute + "': expected numbers and a reach from " + std::to_string(least) + " to " +
              std::to_string(kMaxInWindow) + ", got " + std::to_string(value));
}

}  // namespace

Window ReadWindow(const Attributes& attributes, size_t spatial) {
  return {ReadIntegers(attributes, "strides", spatial), ReadIntegers(attributes, "dilations", spatial),
          ReadIntegers(attributes, "padding_low", spatial), ReadIntegers(attributes, "padding_high", spatial)};
}

void CheckWindow(const Window& window, const std::vector<int64_t>& sizes, const Tensor& from, const Tensor& to) {
  const size_t spatial = window.strides.size();
  const size_t sizes_before = sizes.size() - spatial, from_before = from.dims.size() - spatial;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t taps = sizes[sizes_before + i], stride = window.strides[i], dilation = window.dilations[i];
    CheckNumber("strides", stride, 1);
    CheckNumber("dilations", dilation, 0);
    CheckNumber("padding_low", window.padding_low[i], 0);
    CheckNumber("padding_high", window.padding_high[i], -kMaxInWindow);
    CheckNumber("window", taps, 1);
    const int64_t reach = (taps - 1) * (dilation + 1) + 1;
    CheckNumber("dilations", reach, 1);
    // For 2^31 - 1 positions oneDNN chooses for longer than a minute, before there is a buffer.
    CheckNumber(from.role + "_dims", from.dims[from_before + i], 1);
    const int64_t room = from.dims[from_before + i] + window.padding_low[i] + window.padding_high[i];
    const int64_t positions = room < reach ? 0 : (room - reach) / stride + 1;
    CheckNumber(to.role + "_dims", to.dims[to.dims.size() - spatial + i], 1);
    const int64_t expected = to.dims[to.dims.size() - spatial + i];
    if (positions != expected) {
      Unsupported(to.role + ": expected " + std::to_string(positions) +
                  " positions of the window in spatial dimension " + std::to_string(i) + ", got " +
                  std::to_string(expected));
    }
  }
}

Window WithUnitDimension(Window window) {
  window.strides.insert(window.strides.begin(), 1);
  for (auto* values : {&window.dilations, &window.padding_low, &window.padding_high}) {
    values->insert(values->begin(), 0);
  }
  return window;
}

ConvolutionCall ConvolutionCall::Read(const Attributes& attributes, const Roles& roles, const char* weights) {
  const size_t spatial = CheckRanks(attributes, roles, weights);
  const bool one_dimensional = spatial == 1;
  Window window = ReadWindow(attributes, spatial);
  if (one_dimensional) window = WithUnitDimension(std::move(window));
  return {std::move(window), CallOperands::Read(attributes, roles, /*add_unit_dimension=*/one_dimensional),
          one_dimensional};
}

}  // namespace hlo_dispatch::onednn
