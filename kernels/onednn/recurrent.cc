// hlo_dispatch.onednn.recurrent
//
// A recurrent layer over a whole sequence: for every step t, forwards or, if `reversed`, backwards,
//
//   x = input[t] = src[t] · input_weights, or src[t] itself where there are none;  u = state · weights
//
//   lstm: i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of x + u + bias;  c = f c + i g;  state = o tanh(c)
//   gru:  r, z = sigmoid of x + u + bias;  n = tanh(x + bias + r (u + bias_3));  state = z state + (1 - z) n
//   gru_complement: the same with 1 - z for z;  tanh, relu: state = that of x + u + bias
//   dst[t] = state
//
// Columns of src (or input_weights) and weights are blocks of one gate each, of as many units as the state has;
// input_blocks and hidden_blocks say which block belongs to each gate, in the order above. bias is (gates, units), and
// GRU has a fourth row. Operands: src (T, N, C), weights (H, G H), [input_weights (C, G H)], [bias], state (N, H),
// [cell_state (N, H)]. Results: dst (T, N, H), the last state, [the last cell_state], scratch (nothing).
//
// Products are oneDNN's matmul: all of the sequence's input at once, and one a step. oneDNN's own RNN primitive demands
// its own order of gates, and took no less: with H = 512, T = 64, N = 1, 8, 32 in f32 on two busy cores of a Sapphire
// Rapids 3.3, 17 to 23, 59 to 62 ms, where the products alone, without gates, took 3.4, 10 to 20, 61.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/halves.h"
#include "common/machine_speed.h"
#include "common/pool_size.h"
#include "common/processor.h"
#include "common/routine.h"
#include "common/strided_array.h"
#include "onednn/call.h"
#include "onednn/matmul.h"
#include "onednn/memory_layout.h"
#include "onednn/plan.h"
#include "onednn/primitive.h"
#include "onednn/recurrent_cells.h"
#include "onednn/reorder_scratch.h"

namespace hlo_dispatch::onednn {

namespace {

// So many units of one step are worth dividing.
constexpr int64_t kMinUnitsPerThread = 4096;

struct Kind {
  const char* name;
  Cell cell;
  int64_t gates, biases;
};
constexpr Kind kKinds[] = {{"lstm", Cell::kLstm, 4, 4},
                           {"gru", Cell::kGru, 3, 4},
                           {"gru_complement", Cell::kGruComplement, 3, 4},
                           {"tanh", Cell::kTanh, 1, 1},
                           {"relu", Cell::kRelu, 1, 1}};

const Kind& ReadKind(const Attributes& attributes) {
  const std::string name = attributes.Text("cell");
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind;
  }
  Invalid("attribute 'cell': expected lstm, gru, gru_complement, tanh or relu, got '" + name + "'");
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

// A call as its attributes describe it.
struct Problem {
  explicit Problem(const Attributes& attributes)
      : kind(ReadKind(attributes)),
        reversed(attributes.Integer("reversed") != 0),
        source(ReadTensor(attributes, "src")),
        state(ReadTensor(attributes, "state")),
        destination(ReadTensor(attributes, "dst")),
        has_input_weights(attributes.Has("input_weights_type")),
        input_blocks(ReadBlocks(attributes, "input_blocks", kind.gates)),
        hidden_blocks(ReadBlocks(attributes, "hidden_blocks", kind.gates)) {
    if (destination.dims.size() != 3 || source.dims.size() != 3) Invalid("src and dst: expected 3 dimensions");
    steps = destination.dims[0], rows = destination.dims[1], units = destination.dims[2];
    columns = Product(kind.gates, units, "weights");
    if (state.dims != std::vector<int64_t>{rows, units}) Invalid("state: expected rows and units of dst");
    weights = ReadSized(attributes, "weights", {units, columns});
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
  }

  // One step's.
  CallPlan PlanStep() const {
    return PlanProduct(Dense("src", weights.type, {rows, units}), weights,
                       Dense("dst", ElementType::kF32, {rows, columns}), WeightsFormat::kPrepacked);
  }

  // That of all steps' input: of one matrix where its rows lie at equal distances.
  CallPlan PlanInput() const {
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

  const Kind& kind;
  bool reversed;
  Tensor source, state, destination;
  bool has_input_weights, has_bias = false;
  std::vector<int64_t> input_blocks, hidden_blocks;
  Tensor weights, input_weights, cell_state, bias;
  int64_t steps = 0, rows = 0, units = 0, columns = 0;
};

CallPlan PlanStep(const Attributes& attributes) { return Problem(attributes).PlanStep(); }

// Copies rows of an array to dense f32, and back.
void Widen(const Tensor& array, const void* buffer, float* to) {
  const void* from = array.Begin(const_cast<void*>(buffer));
  for (int64_t n = 0; n < array.dims[0]; ++n) {
    for (int64_t j = 0; j < array.dims[1]; ++j) {
      *to++ = WidenedNumber(from, array.type, n * array.strides[0] + j * array.strides[1]);
    }
  }
}

void Narrow(const Tensor& array, const float* from, void* buffer) {
  void* to = array.Begin(buffer);
  for (int64_t n = 0; n < array.dims[0]; ++n) {
    for (int64_t j = 0; j < array.dims[1]; ++j) {
      StoreNarrowed(*from++, array.type, to, n * array.strides[0] + j * array.strides[1]);
    }
  }
}

class Recurrent final : public Routine {
 public:
  explicit Recurrent(const Attributes& attributes)
      : problem_(attributes),
        arithmetic_(ForThisProcessor(plain::kCellArithmetic, avx2::kCellArithmetic, avx512::kCellArithmetic)) {
    const bool is_prepacked = attributes.Has("weights_format") && attributes.Text("weights_format") == "packed";
    Library::Get().ForPool([&] {
      CallPlan step = problem_.PlanStep();
      prepacked_ = step.prepacked;
      has_helpers_ = MachineSpeed::Get().RepaysHelp(4 * step.MinSeconds());
      if (!is_prepacked && prepacked_.bytes > 0) pack_ = std::make_unique<Primitive>(PlanPrepack(step));
      step_ = std::make_unique<Primitive>(std::move(step));
      if (problem_.has_input_weights) input_ = std::make_unique<Primitive>(problem_.PlanInput());
    });
    if (!is_prepacked) {
      if (attributes.Has("packed_bytes")) Invalid("attribute 'packed_bytes': expected with packed weights alone");
    }
    PlaceMemory();
    reservation_ = std::make_unique<ReorderScratchReservation>(memory_.bytes());
    operands_ = {SpecOf(problem_.source), SpecOf(problem_.weights)};
    if (is_prepacked && prepacked_.bytes > 0) {
      operands_[kWeightsOperand] = {"weights", xla::ffi::U8, prepacked_.bytes};
    }
    is_prepacked_ = is_prepacked;
    if (problem_.has_input_weights) operands_.push_back(SpecOf(problem_.input_weights));
    if (problem_.has_bias) operands_.push_back(SpecOf(problem_.bias));
    operands_.push_back(SpecOf(problem_.state));
    results_ = {SpecOf(problem_.destination), SpecOf(problem_.state)};
    if (has_cell_state()) {
      operands_.push_back(SpecOf(problem_.cell_state));
      results_.push_back(SpecOf(problem_.cell_state));
    }
    results_.push_back(PlannedScratch(attributes));
  }

  std::string implementation() const override {
    return std::string("recurrent:") + problem_.kind.name + ":" + step_->plan().implementation;
  }

  const PrepackedWeights* prepacked() const override { return is_prepacked_ ? &prepacked_ : nullptr; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const TbbThreads* tbb = Library::Get().tbb();
    parallel.Gather(tbb, PoolThreads(), has_helpers_, [&] {
      Run(buffers, !has_helpers_ ? Parallel() : tbb == nullptr ? parallel : Parallel(tbb));
    });
  }

 private:
  bool has_cell_state() const { return problem_.kind.cell == Cell::kLstm; }
  bool is_half() const { return problem_.weights.type == ElementType::kBF16; }

  void PlaceMemory() {
    const int64_t state = Bytes(Product(problem_.rows, problem_.units, "state"), 4, "state");
    const int64_t gates = Bytes(Product(problem_.rows, problem_.columns, "weights"), 4, "weights");
    packed_offset_ = memory_.Reserve(pack_ == nullptr ? 0 : prepacked_.bytes);
    pack_scratch_offset_ = memory_.Reserve(pack_ == nullptr ? 0 : pack_->plan().scratch_bytes);
    input_offset_ = memory_.Reserve(input_ == nullptr ? 0 : Bytes(Product(problem_.steps, gates, "src"), 1, "src"));
    input_scratch_offset_ = memory_.Reserve(input_ == nullptr ? 0 : input_->plan().scratch_bytes);
    step_scratch_offset_ = memory_.Reserve(step_->plan().scratch_bytes);
    gates_offset_ = memory_.Reserve(gates);
    state_offset_ = memory_.Reserve(state);
    cell_state_offset_ = memory_.Reserve(state);
    product_offset_ = memory_.Reserve(is_half() ? state / 2 : 0);
  }

  void Run(const RoutineBuffers& buffers, const Parallel& parallel) const {
    const ReorderScratchLease lease(memory_.bytes());
    char* const memory = lease.data();
    size_t next = 2;
    void* const source = const_cast<void*>(buffers.operands[0]);
    void* weights = const_cast<void*>(buffers.operands[1]);
    void* const input_weights = problem_.has_input_weights ? const_cast<void*>(buffers.operands[next++]) : nullptr;
    const auto* bias = static_cast<const float*>(problem_.has_bias ? buffers.operands[next++] : nullptr);
    if (bias != nullptr) bias = static_cast<const float*>(problem_.bias.Begin(const_cast<float*>(bias)));
    auto* const state = reinterpret_cast<float*>(memory + state_offset_);
    auto* const cell_state = reinterpret_cast<float*>(memory + cell_state_offset_);
    Widen(problem_.state, buffers.operands[next++], state);
    if (has_cell_state()) Widen(problem_.cell_state, buffers.operands[next++], cell_state);
    for (int64_t i = 0; is_half() && i < problem_.rows * problem_.units; ++i) {
      StoreNarrowed(state[i], ElementType::kBF16, memory + product_offset_, i);
    }

    if (pack_ != nullptr) {
      pack_->Execute({problem_.weights.Begin(weights)}, memory + packed_offset_, memory + pack_scratch_offset_,
                     parallel);
      weights = memory + packed_offset_;
    } else if (!(is_prepacked_ && prepacked_.bytes > 0)) {
      weights = problem_.weights.Begin(weights);
    }
    const char* input = static_cast<char*>(problem_.source.Begin(source));
    if (input_ != nullptr) {
      input_->Execute({problem_.source.Begin(source), problem_.input_weights.Begin(input_weights)},
                      memory + input_offset_, memory + input_scratch_offset_, parallel);
      input = memory + input_offset_;
    }
    void* const product_source = is_half() ? memory + product_offset_ : static_cast<void*>(state);
    for (int64_t i = 0; i < problem_.steps; ++i) {
      const int64_t step = problem_.reversed ? problem_.steps - 1 - i : i;
      step_->Execute({product_source, weights}, memory + gates_offset_, memory + step_scratch_offset_, parallel);
      const int64_t grain = std::max<int64_t>(1, kMinUnitsPerThread / problem_.units);
      parallel.For(problem_.rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          Step(step, row, input, bias, memory, static_cast<char*>(problem_.destination.Begin(buffers.results[0])));
        }
      });
    }
    Narrow(problem_.state, state, buffers.results[1]);
    if (has_cell_state()) Narrow(problem_.cell_state, cell_state, buffers.results[2]);
  }

  void Step(int64_t step, int64_t row, const char* input, const float* bias, char* memory, char* destination) const {
    const int64_t units = problem_.units, columns = problem_.columns;
    const bool is_own = input_ != nullptr;
    const bool half_input = !is_own && problem_.source.type == ElementType::kBF16;
    const int64_t input_bytes = half_input ? 2 : 4;
    const int64_t input_row = is_own ? (step * problem_.rows + row) * columns
                                     : step * problem_.source.strides[0] + row * problem_.source.strides[1];
    const bool half_result = problem_.destination.type == ElementType::kBF16;
    CellRow cell{};
    for (int64_t gate = 0; gate < problem_.kind.gates; ++gate) {
      const auto g = static_cast<size_t>(gate);
      cell.hidden[g] =
          reinterpret_cast<const float*>(memory + gates_offset_) + row * columns + problem_.hidden_blocks[g] * units;
      cell.input[g] = input + (input_row + problem_.input_blocks[g] * units) * input_bytes;
    }
    for (int64_t gate = 0; bias != nullptr && gate < problem_.kind.biases; ++gate) {
      cell.bias[gate] = bias + gate * problem_.bias.strides[0];
    }
    cell.state = reinterpret_cast<float*>(memory + state_offset_) + row * units;
    cell.cell_state = reinterpret_cast<float*>(memory + cell_state_offset_) + row * units;
    cell.product = is_half() ? memory + product_offset_ + 2 * row * units : nullptr;
    cell.result = destination + (step * problem_.destination.strides[0] + row * problem_.destination.strides[1]) *
                                    (half_result ? 2 : 4);
    arithmetic_.step(problem_.kind.cell, half_input, half_result, cell, units);
  }

  Problem problem_;
  const CellArithmetic& arithmetic_;
  PrepackedLayout prepacked_;
  bool is_prepacked_ = false;  // whether the attributes ask for prepacked weights
  bool has_helpers_ = false;
  std::unique_ptr<Primitive> pack_;  // null: the weights are prepacked, or read as they are
  std::unique_ptr<Primitive> input_, step_;
  MemoryLayout memory_;
  int64_t packed_offset_ = 0, pack_scratch_offset_ = 0, input_offset_ = 0, input_scratch_offset_ = 0,
          step_scratch_offset_ = 0, gates_offset_ = 0, state_offset_ = 0, cell_state_offset_ = 0, product_offset_ = 0;
  std::unique_ptr<ReorderScratchReservation> reservation_;
};

std::unique_ptr<Routine> Make(const Attributes& attributes) {
  CheckLibrary(attributes);
  return std::make_unique<Recurrent>(attributes);
}

struct Registration {
  Registration() {
    Kernel kernel;
    kernel.name = "onednn.recurrent";
    kernel.library = "oneDNN";
    kernel.packed_by = "onednn.pack";
    RoutineKernel<Make>::Add(std::move(kernel));
    AddPlanner(KernelOf("hlo_dispatch.onednn.recurrent"), PlanStep);
  }
};
const Registration registration;

}  // namespace

}  // namespace hlo_dispatch::onednn
