#include "onednn/recurrent_problem.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/checked.h"
#include "common/failure.h"
#include "common/strided_array.h"
#include "onednn/matmul.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr RecurrentKind kKinds[] = {{"lstm", Cell::kLstm, 4, 4, 4},
                                    {"gru", Cell::kGru, 3, 4, 3},
                                    {"gru_complement", Cell::kGruComplement, 3, 4, 3},
                                    {"gru_reset_first", Cell::kGruResetFirst, 3, 3, 2},
                                    {"gru_reset_first_complement", Cell::kGruResetFirstComplement, 3, 3, 2},
                                    {"tanh", Cell::kTanh, 1, 1, 1},
                                    {"relu", Cell::kRelu, 1, 1, 1}};

const RecurrentKind& ReadKind(const Attributes& attributes) {
  const std::string name = attributes.Text("cell");
  std::string expected;
  for (const RecurrentKind& kind : kKinds) {
    if (name == kind.name) return kind;
    expected += (expected.empty() ? "" : ", ") + std::string(kind.name);
  }
  Invalid("attribute 'cell': expected one of " + expected + ", got '" + name + "'");
}

std::vector<int64_t> ReadBlocks(const Attributes& attributes, const std::string& name, int64_t gates) {
  std::vector<int64_t> blocks = ReadIntegers(attributes, name, static_cast<size_t>(gates));
  std::vector<int64_t> sorted = blocks;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < gates; ++i) {
    if (sorted[static_cast<size_t>(i)] != i) {
      Invalid("attribute '" + name + "': expected each of 0 to " + std::to_string(gates - 1) + " once");
    }
  }
  return blocks;
}

Tensor ReadSized(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims) {
  Tensor tensor = ReadTensor(attributes, role);
  if (tensor.dims != dims) {
    std::string expected;
    for (int64_t size : dims) expected += (expected.empty() ? "" : " x ") + std::to_string(size);
    Invalid(role + ": expected the dimensions " + expected);
  }
  return tensor;
}

// Arrays that our own loops go through row by row.
void CheckRows(const StridedArray& array, bool may_be_half) {
  if (array.type != ElementType::kF32 && !(may_be_half && array.type == ElementType::kBF16)) {
    Unsupported(array.role + ": expected f32" + (may_be_half ? " or bf16" : "") + ", got " +
                ElementTypeName(array.type));
  }
  if (array.strides.back() != 1 && array.dims.back() != 1) {
    Unsupported(array.role + ": expected units that lie side by side");
  }
}

Tensor Dense(const char* role, ElementType type, std::vector<int64_t> dims) {
  Tensor tensor;
  tensor.role = role;
  tensor.type = type;
  tensor.strides.assign(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i) {
    tensor.strides[i - 1] = Product(tensor.strides[i], dims[i], role);
  }
  tensor.dims = std::move(dims);
  return tensor;
}

CallPlan PlanProduct(Tensor source, Tensor weights, Tensor destination, WeightsFormat format) {
  CallOperands operands;
  operands.source = std::move(source);
  operands.weights = std::move(weights);
  operands.destination = std::move(destination);
  operands.weights_format = format;
  operands.has_space = false;
  return PlanMatmul(std::move(operands));
}

}  // namespace

RecurrentProblem::RecurrentProblem(const Attributes& attributes)
    : kind(ReadKind(attributes)),
      reversed(attributes.Integer("reversed") != 0),
      source(ReadTensor(attributes, "src")),
      state(ReadTensor(attributes, "state")),
      destination(ReadTensor(attributes, "dst")),
      has_input_weights(attributes.Has("input_weights_type")),
      input_blocks(ReadBlocks(attributes, "input_blocks", kind.gates)),
      hidden_blocks(ReadBlocks(attributes, "hidden_blocks", kind.state_gates)) {
  if (destination.dims.size() != 3 || source.dims.size() != 3) Invalid("src and dst: expected 3 dimensions");
  steps = destination.dims[0], rows = destination.dims[1], units = destination.dims[2];
  columns = Product(kind.gates, units, "input_weights");
  state_columns = Product(kind.state_gates, units, "weights");
  if (state.dims != std::vector<int64_t>{rows, units}) Invalid("state: expected rows and units of dst");
  weights = ReadSized(attributes, "weights", {units, state_columns});
  if (resets_first()) candidate_weights = ReadSized(attributes, "candidate_weights", {units, units});
  const int64_t inputs = source.dims[2];
  if (source.dims[0] != steps || source.dims[1] != rows || (!has_input_weights && inputs != columns)) {
    Invalid("src: expected steps and rows of dst, and as many columns as weights where it has no weights");
  }
  if (has_input_weights) input_weights = ReadSized(attributes, "input_weights", {inputs, columns});
  if (kind.cell == Cell::kLstm) cell_state = ReadSized(attributes, "cell_state", {rows, units});
  has_bias = attributes.Has("bias_type");
  if (has_bias) bias = ReadSized(attributes, "bias", {kind.biases, units});
  if (!has_input_weights) CheckRows(source, true);
  CheckRows(destination, true);
  if (has_bias) CheckRows(bias, false);
  if (weights.type != ElementType::kF32 && weights.type != ElementType::kBF16) {
    Unsupported("weights: expected f32 or bf16");
  }
  if (resets_first() && candidate_weights.type != weights.type) {
    Unsupported("candidate_weights: expected the type of weights");
  }
}

CallPlan RecurrentProblem::PlanStep(const Tensor& matrix) const {
  return PlanProduct(Dense("src", matrix.type, {rows, units}), matrix,
                     Dense("dst", ElementType::kF32, {rows, matrix.dims[1]}), WeightsFormat::kPrepacked);
}

CallPlan RecurrentProblem::PlanInput() const {
  Tensor all = source, matrix = input_weights;
  const int64_t inputs = source.dims[2], distance = rows == 1 ? source.strides[0] : source.strides[1];
  const bool is_matrix = rows == 1 || steps == 1 || source.strides[0] == Product(rows, source.strides[1], "src");
  if (is_matrix) {
    all.dims = {Product(steps, rows, "src"), inputs};
    all.strides = {distance, source.strides[2]};
    return PlanProduct(all, matrix, Dense("dst", ElementType::kF32, {all.dims[0], columns}), WeightsFormat::kBest);
  }
  matrix.dims.insert(matrix.dims.begin(), 1);
  matrix.strides.insert(matrix.strides.begin(), Extent(input_weights.dims, input_weights.strides, "input_weights"));
  return PlanProduct(all, matrix, Dense("dst", ElementType::kF32, {steps, rows, columns}), WeightsFormat::kBest);
}

}  // namespace hlo_dispatch::onednn
