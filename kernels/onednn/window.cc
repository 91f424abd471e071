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
    throw Failure(FailureKind::kInvalid, first + ": expected 3 to 5 dimensions (batch, channels, 1 to 3 spatial), got " +
                                             std::to_string(rank));
  }
  for (const std::string role : {roles.weights, roles.destination}) {
    if (role == weights) continue;
    const size_t other = attributes.Integers(role + "_dims").size();
    if (other != rank) {
      throw Failure(FailureKind::kInvalid, role + ": expected as many dimensions as " + first + " (" +
                                               std::to_string(rank) + "), got " + std::to_string(other));
    }
  }
  const size_t weights_rank = attributes.Integers(weights + "_dims").size();
  if (weights_rank != rank && weights_rank != rank + 1) {
    throw Failure(FailureKind::kInvalid, weights + ": expected " + std::to_string(rank) + " dimensions, or " +
                                             std::to_string(rank + 1) + " with groups, got " +
                                             std::to_string(weights_rank));
  }
  return rank - 2;
}

}  // namespace

Window ReadWindow(const Attributes& attributes, size_t spatial) {
  return {ReadIntegers(attributes, "strides", spatial), ReadIntegers(attributes, "dilations", spatial),
          ReadIntegers(attributes, "padding_low", spatial), ReadIntegers(attributes, "padding_high", spatial)};
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
