#include "attention/problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "common/checked.h"
#include "common/failure.h"

namespace hlo_dispatch::attention {

namespace {

constexpr size_t kMaxBatchDimensions = 4;
constexpr int kMaxSteps = 16;

// The array as a batch of matrices.
Operand MatricesOf(StridedArray array) {
  if (array.dims.size() < 2 || array.dims.size() > kMaxBatchDimensions + 2) {
    Unsupported(array.role + ": expected rows, columns and up to " + std::to_string(kMaxBatchDimensions) +
                " dimensions in front, got " + std::to_string(array.dims.size()) + " dimensions");
  }
  // Nothing is reached along one element, but addresses are computed with its stride.
  for (size_t i = 0; i < array.dims.size(); ++i) {
    if (array.dims[i] == 1) array.strides[i] = 0;
  }
  return {std::move(array)};
}

Operand Read(const Attributes& attributes, const std::string& role) {
  return MatricesOf(ReadArray(attributes, role, Accepted::kFloats, Places::kMayRepeat));
}

void CheckDims(const Operand& operand, const std::vector<int64_t>& batch, int64_t rows, int64_t columns) {
  std::vector<int64_t> expected = batch;
  expected.insert(expected.end(), {rows, columns});
  if (operand.dims == expected) return;
  std::string text;
  for (int64_t size : expected) text += (text.empty() ? "" : ", ") + std::to_string(size);
  Invalid(operand.role + ": expected dimensions [" + text + "]");
}

float Number(const Attributes& attributes, const std::string& role, bool is_divisor) {
  const float value = attributes.Real("value");
  if (is_divisor && !(std::isfinite(value) && value != 0)) {
    Invalid("attribute '" + role + ".value': expected a finite number other than 0, got " + std::to_string(value));
  }
  return value;
}

// Sums of it and rows or columns do not overflow, and mean the same.
int64_t Reach(int64_t reach) { return std::clamp<int64_t>(reach, -(int64_t{1} << 40), int64_t{1} << 40); }

Step ReadStep(const Attributes& attributes, const std::string& role, std::vector<Operand>& others) {
  const std::string kind = attributes.Text("kind");
  Step step{StepKind::kScale};
  if (kind == "add" || kind == "select") {
    step.kind = kind == "add" ? StepKind::kAdd : StepKind::kSelect;
    step.operand = others.size();
    const Accepted accepted = kind == "select" ? Accepted::kMask : Accepted::kFloats;
    others.push_back(MatricesOf(ReadNestedArray(attributes, role, accepted, Places::kMayRepeat)));
    if (kind == "add") {
      step.value = kAbsorbed;
      return step;
    }
  } else if (kind == "causal") {
    step.kind = StepKind::kCausal;
    step.reach = Reach(attributes.Integer("offset"));
  } else if (kind == "window") {
    step.kind = StepKind::kWindow;
    step.reach = Reach(attributes.Integer("before"));
  } else if (kind == "softcap") {
    step.kind = StepKind::kSoftcap;
  } else if (kind != "scale") {
    Invalid("attribute '" + role + ".kind': expected scale, add, select, causal, window or softcap, got '" + kind +
            "'");
  }
  step.value = Number(attributes, role, step.kind == StepKind::kSoftcap);
  return step;
}

std::vector<Step> ReadSteps(const Attributes& attributes, std::vector<Operand>& others) {
  std::vector<Step> steps;
  const auto name = [](int i) { return "score_" + std::to_string(i); };
  for (int i = 0; i < kMaxSteps + 1; ++i) {
    if (!attributes.Has(name(i))) continue;
    if (i == kMaxSteps) Unsupported(name(i) + ": expected at most " + std::to_string(kMaxSteps) + " steps");
    if (static_cast<int>(steps.size()) != i) {
      Invalid("attribute '" + name(static_cast<int>(steps.size())) + "' is missing, but there is " + name(i));
    }
    steps.push_back(ReadStep(*attributes.Nested(name(i)), name(i), others));
  }
  return steps;
}

bool MayHide(StepKind kind) {
  return kind == StepKind::kAdd || kind == StepKind::kSelect || kind == StepKind::kCausal || kind == StepKind::kWindow;
}

// What becomes of a score that step `first` has hidden, at most; NaN where that is not known.
float Bound(const std::vector<Step>& steps, size_t first) {
  float bound = steps[first].value;
  for (size_t i = first + 1; i < steps.size(); ++i) {
    const float value = steps[i].value;
    switch (steps[i].kind) {
      case StepKind::kScale:
        bound = value > 0 ? bound * value : std::numeric_limits<float>::quiet_NaN();
        break;
      case StepKind::kAdd:
        return std::numeric_limits<float>::quiet_NaN();
      case StepKind::kSelect:
      case StepKind::kCausal:
      case StepKind::kWindow:
        if (std::isnan(value)) return value;
        bound = std::max(bound, value);
        break;
      case StepKind::kSoftcap:
        bound = std::abs(value) * std::tanh(bound / std::abs(value));
        break;
    }
    if (std::isnan(bound)) return bound;
  }
  return bound;
}

}  // namespace

Matrix Operand::At(const void* buffer, int64_t batch) const {
  const int64_t bytes = ElementBytes(type);
  int64_t place = offset;
  for (size_t i = dims.size() - 2; i-- > 0; batch /= dims[i]) place += batch % dims[i] * strides[i];
  return {static_cast<const char*>(buffer) + place * bytes, type, strides[dims.size() - 2] * bytes,
          strides.back() * bytes};
}

std::vector<Matrix> Problem::OthersAt(const RoutineBuffers& buffers, int64_t batch) const {
  std::vector<Matrix> found;
  for (size_t i = 0; i < others.size(); ++i) found.push_back(others[i].At(buffers.operands[3 + i], batch));
  return found;
}

Problem::Problem(const Attributes& attributes)
    : query(Read(attributes, "query")),
      key(Read(attributes, "key")),
      value(Read(attributes, "value")),
      destination(Read(attributes, "dst")),
      steps(ReadSteps(attributes, others)) {
  const std::vector<int64_t> batch_dims(query.dims.begin(), query.dims.end() - 2);
  CheckDims(key, batch_dims, keys(), depth());
  CheckDims(value, batch_dims, keys(), width());
  CheckDims(destination, batch_dims, queries(), width());
  for (const Operand& other : others) CheckDims(other, batch_dims, queries(), keys());
  CheckDense(destination.dims, destination.strides, "dst");
  if (destination.elements > 0) Invalid("dst: expected a whole buffer");
  for (int64_t size : batch_dims) batch = Product(batch, size, "query");
  hidden = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < steps.size(); ++i) {
    const float bound = MayHide(steps[i].kind) ? Bound(steps, i) : std::numeric_limits<float>::quiet_NaN();
    if (std::isnan(bound)) continue;
    steps[i].may_skip = may_skip = true;
    hidden = std::max(hidden, bound);
  }
  if (queries() == 1) MakeRowsOfHeads();
}

void Problem::MakeRowsOfHeads() {
  for (size_t i = 0; i + 2 < query.dims.size(); ++i) {
    if (query.dims[i] == 1 || key.strides[i] != 0 || value.strides[i] != 0) continue;
    is_one_query = true;
    batch /= query.dims[i];
    const auto moved = [i](Operand& operand, bool has_rows) {
      if (has_rows) {
        operand.dims[operand.dims.size() - 2] = operand.dims[i];
        operand.strides[operand.strides.size() - 2] = operand.strides[i];
      }
      operand.dims.erase(operand.dims.begin() + static_cast<std::ptrdiff_t>(i));
      operand.strides.erase(operand.strides.begin() + static_cast<std::ptrdiff_t>(i));
    };
    moved(query, true);
    moved(key, false);
    moved(value, false);
    moved(destination, true);
    for (Operand& other : others) moved(other, true);
    return;
  }
}

}  // namespace hlo_dispatch::attention
