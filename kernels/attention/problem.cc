#include "attention/problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "common/checked.h"
#include "common/element_type.h"
#include "common/failure.h"

namespace hlo_dispatch::attention {

namespace {

constexpr size_t kMaxBatchDimensions = 4;
constexpr int64_t kMaxPerDimension = std::numeric_limits<int>::max();
constexpr int kMaxSteps = 16;

Element ElementNamed(const std::string& name, const std::string& attribute, bool is_mask) {
  if (is_mask) {
    if (name != "pred") Invalid("attribute '" + attribute + "': expected pred, got '" + name + "'");
    return Element::kPred;
  }
  switch (ElementTypeFromName(name, attribute)) {
    case ElementType::kF32:
      return Element::kF32;
    case ElementType::kBF16:
      return Element::kBF16;
    case ElementType::kF16:
      return Element::kF16;
    case ElementType::kS8:
    case ElementType::kU8:
      break;
  }
  Invalid("attribute '" + attribute + "': unknown element type");
}

int64_t BytesOf(Element type) { return type == Element::kF32 ? 4 : type == Element::kPred ? 1 : 2; }

// `prefix` is in front of the attributes' names: <role>_, or nothing in a step's dictionary.
Operand Read(const Attributes& attributes, const std::string& role, const std::string& prefix, bool is_mask = false) {
  Operand operand{
      role, ElementNamed(attributes.Text(prefix + "type"), prefix.empty() ? role + ".type" : prefix + "type", is_mask),
      0, attributes.Integers(prefix + "dims"), attributes.Integers(prefix + "strides")};
  operand.element_bytes = BytesOf(operand.type);
  if (operand.dims.size() < 2 || operand.dims.size() > kMaxBatchDimensions + 2) {
    Unsupported(role + ": expected rows, columns and up to " + std::to_string(kMaxBatchDimensions) +
                " dimensions in front, got " + std::to_string(operand.dims.size()) + " dimensions");
  }
  if (operand.strides.size() != operand.dims.size()) {
    Invalid(role + ": expected as many strides as dimensions (" + std::to_string(operand.dims.size()) + "), got " +
            std::to_string(operand.strides.size()));
  }
  for (size_t i = 0; i < operand.dims.size(); ++i) {
    if (operand.dims[i] < 1) Invalid(role + ": expected dimensions >= 1, got " + std::to_string(operand.dims[i]));
    if (operand.strides[i] < 0) Invalid(role + ": expected strides >= 0, got " + std::to_string(operand.strides[i]));
    if (operand.dims[i] > kMaxPerDimension) {
      Unsupported(role + ": expected dimensions of at most " + std::to_string(kMaxPerDimension) + ", got " +
                  std::to_string(operand.dims[i]));
    }
  }
  const int64_t extent = Extent(operand.dims, operand.strides, role);
  operand.elements = extent;
  if (attributes.Has(prefix + "elements") || attributes.Has(prefix + "offset")) {
    operand.offset = attributes.Integer(prefix + "offset");
    operand.elements = attributes.Integer(prefix + "elements");
    if (operand.offset < 0 || operand.elements < 1 || operand.offset > operand.elements - extent) {
      Invalid(role + ": expected " + std::to_string(extent) + " elements behind offset " +
              std::to_string(operand.offset) + ", got a buffer of " + std::to_string(operand.elements));
    }
  }
  Bytes(operand.elements, operand.element_bytes, role);
  // Nothing is reached along one element, but addresses are computed with its stride.
  for (size_t i = 0; i < operand.dims.size(); ++i) {
    if (operand.dims[i] == 1) operand.strides[i] = 0;
  }
  return operand;
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
    others.push_back(Read(attributes, role, "", kind == "select"));
    if (kind == "add") return step;
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

bool IsMask(StepKind kind) {
  return kind == StepKind::kSelect || kind == StepKind::kCausal || kind == StepKind::kWindow;
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

BufferSpec Operand::spec() const {
  const auto dtype = type == Element::kF32    ? xla::ffi::F32
                     : type == Element::kBF16 ? xla::ffi::BF16
                     : type == Element::kF16  ? xla::ffi::F16
                                              : xla::ffi::PRED;
  return {role, dtype, elements * element_bytes};
}

Matrix Operand::At(const void* buffer, int64_t batch) const {
  int64_t place = offset;
  for (size_t i = dims.size() - 2; i-- > 0; batch /= dims[i]) place += batch % dims[i] * strides[i];
  return {static_cast<const char*>(buffer) + place * element_bytes, type, strides[dims.size() - 2] * element_bytes,
          strides.back() * element_bytes};
}

Problem::Problem(const Attributes& attributes)
    : query(Read(attributes, "query", "query_")),
      key(Read(attributes, "key", "key_")),
      value(Read(attributes, "value", "value_")),
      destination(Read(attributes, "dst", "dst_")),
      steps(ReadSteps(attributes, others)) {
  const std::vector<int64_t> batch_dims(query.dims.begin(), query.dims.end() - 2);
  CheckDims(key, batch_dims, keys(), depth());
  CheckDims(value, batch_dims, keys(), width());
  CheckDims(destination, batch_dims, queries(), width());
  for (const Operand& other : others) CheckDims(other, batch_dims, queries(), keys());
  CheckDense(destination.dims, destination.strides, "dst");
  if (destination.elements != Elements(destination.dims, "dst")) Invalid("dst: expected a whole buffer");
  for (int64_t size : batch_dims) batch = Product(batch, size, "query");
  hidden = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < steps.size(); ++i) {
    const float bound = IsMask(steps[i].kind) ? Bound(steps, i) : std::numeric_limits<float>::quiet_NaN();
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
