#include "onednn/disjoint_windows.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace hlo_dispatch::onednn {

namespace {

constexpr size_t kSpace = 2;  // the first spatial dimension

// A batch dimension of the product: its size, and its strides in source, weights and result. One operand has it
// not: its stride there is 0.
struct BatchDimension {
  int64_t size, source, weights, destination;

  // Whether one dimension steps through this one and, inside of it, `inner`.
  bool Includes(const BatchDimension& inner) const {
    return source == inner.size * inner.source && weights == inner.size * inner.weights &&
           destination == inner.size * inner.destination;
  }
};

bool AreDisjoint(const CallOperands& operands, const Window& window) {
  const size_t spatial = window.strides.size();
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t taps = operands.weights.dims[kSpace + i], positions = operands.source.dims[kSpace + i];
    if (window.padding_low[i] != 0 || window.strides[i] != taps || (window.dilations[i] != 0 && taps > 1)) return false;
    if (operands.destination.dims[kSpace + i] != positions * taps) return false;
  }
  return true;
}

// The batch dimensions, slowest first, of more than one element.
std::vector<BatchDimension> BatchDimensions(const CallOperands& operands) {
  const Tensor &source = operands.source, &weights = operands.weights, &destination = operands.destination;
  std::vector<BatchDimension> found;
  const auto add = [&](const BatchDimension& next) {
    if (next.size == 1) return;
    if (!found.empty() && found.back().Includes(next)) {
      found.back() = {found.back().size * next.size, next.source, next.weights, next.destination};
    } else {
      found.push_back(next);
    }
  };
  add({source.dims[0], source.strides[0], 0, destination.strides[0]});
  for (size_t i = kSpace; i + 1 < source.dims.size(); ++i) {
    const int64_t taps = weights.dims[i];
    add({source.dims[i], source.strides[i], 0, taps * destination.strides[i]});
    add({taps, 0, weights.strides[i], destination.strides[i]});
  }
  return found;
}

// A tensor with other dimensions. A dimension of one element steps over everything inside of it.
void SetDimensions(Tensor& tensor, std::vector<int64_t> dims, std::vector<int64_t> strides) {
  int64_t inside = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) strides[i] = inside;
    inside = std::max(inside, dims[i] * strides[i]);
  }
  tensor.dims = std::move(dims);
  tensor.strides = std::move(strides);
}

}  // namespace

std::optional<CallOperands> ProductOfDisjointWindows(const CallOperands& operands, const Window& window) {
  const Tensor &source = operands.source, &weights = operands.weights, &destination = operands.destination;
  const size_t last = source.dims.size() - 1;
  if (weights.dims.size() != source.dims.size() || operands.ReversesWeights()) return std::nullopt;
  if (IsInteger(source.type) || weights.type != source.type || destination.type != source.type) return std::nullopt;
  if (!AreDisjoint(operands, window)) return std::nullopt;
  const int64_t channels = weights.dims[0], taps = weights.dims[last];
  const auto are_adjacent = [&](const Tensor& tensor, size_t channel) {
    return taps == 1 || channels == 1 || tensor.strides[last] == channels * tensor.strides[channel];
  };
  const size_t column = channels > 1 ? 0 : last;
  const int64_t weights_step = weights.strides[column], step = destination.strides[channels > 1 ? 1 : last];
  const bool have_rows = step == 1 && (weights_step == 1 || weights.strides[1] == 1);
  if (taps * channels == 1 || !have_rows || !are_adjacent(weights, 0) || !are_adjacent(destination, 1)) {
    return std::nullopt;
  }
  std::vector<int64_t> dims[3], strides[3];
  const auto add = [&](size_t tensor, int64_t size, int64_t stride) {
    dims[tensor].push_back(stride == 0 ? 1 : size);
    strides[tensor].push_back(stride);
  };
  for (const BatchDimension& batch : BatchDimensions(operands)) {
    add(0, batch.size, batch.source);
    add(1, batch.size, batch.weights);
    add(2, batch.size, batch.destination);
  }
  const int64_t rows = source.dims[last], depth = source.dims[1], columns = taps * channels;
  add(0, rows, source.strides[last]);
  add(0, depth, source.strides[1]);
  add(1, depth, weights.strides[1]);
  add(1, columns, weights_step);
  add(2, rows, taps * destination.strides[last]);
  add(2, columns, step);
  CallOperands product;
  product.source = source;
  product.weights = weights;
  product.destination = destination;
  // Each row of windows reads all of the weights, which matmul would copy into blocks as often.
  const bool is_best = operands.weights_format == WeightsFormat::kBest;
  product.weights_format = is_best ? WeightsFormat::kAny : operands.weights_format;
  product.has_space = false;
  SetDimensions(product.source, std::move(dims[0]), std::move(strides[0]));
  SetDimensions(product.weights, std::move(dims[1]), std::move(strides[1]));
  SetDimensions(product.destination, std::move(dims[2]), std::move(strides[2]));
  return product;
}

}  // namespace hlo_dispatch::onednn
