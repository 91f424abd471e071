#include "onednn/reverse.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace hlo_dispatch::onednn {

namespace {

struct Axis {
  int64_t size;
  int64_t step;  // in bytes
  bool reversed;
};

// The tensor's dimensions with more than one element, slowest first; the last `count` of its own are reversed.
std::vector<Axis> Axes(const Tensor& tensor, size_t count) {
  const size_t first = tensor.dims.size() - count;
  std::vector<Axis> axes;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] > 1) {
      axes.push_back({tensor.dims[i], tensor.strides[i] * ElementBytes(tensor.type), i >= first});
    }
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.step > b.step; });
  return axes;
}

void Copy(const Axis* axis, const Axis* last, const char* from, char* to, size_t run) {
  if (axis == last) {
    std::memcpy(to, from, run);
    return;
  }
  for (int64_t i = 0; i < axis->size; ++i) {
    const int64_t source = axis->reversed ? axis->size - 1 - i : i;
    Copy(axis + 1, last, from + source * axis->step, to + i * axis->step, run);
  }
}

}  // namespace

void CopyReversed(const Tensor& tensor, size_t count, const void* from, void* to) {
  std::vector<Axis> axes = Axes(tensor, count);
  // Neighbouring elements that keep their order are copied at once.
  int64_t run = ElementBytes(tensor.type);
  while (!axes.empty() && !axes.back().reversed && axes.back().step == run) {
    run *= axes.back().size;
    axes.pop_back();
  }
  Copy(axes.data(), axes.data() + axes.size(), static_cast<const char*>(from), static_cast<char*>(to),
       static_cast<size_t>(run));
}

}  // namespace hlo_dispatch::onednn
