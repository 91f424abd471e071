// hlo_dispatch.onednn.recurrent
//
// A recurrent layer over a whole sequence: for every step t, forwards or, if `reversed`, backwards,
//
//   x = input[t] = src[t] · input_weights, or src[t] itself where there are none;  u = state · weights
//
//   lstm: i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of x + u + bias;  c = f c + i g;  state = o tanh(c)
//   gru:  r, z = sigmoid of x + u + bias;  n = tanh(x + bias + r (u + bias_3));  state = z state + (1 - z) n
//   gru_reset_first: likewise, but n = tanh(x + bias + (r state) · candidate_weights)
//   gru_complement, gru_reset_first_complement: the same with 1 - z for z;  tanh, relu: state = that of x + u + bias
//   dst[t] = state
//
// Columns of src (or input_weights) and weights are blocks of one gate each, of as many units as the state has;
// input_blocks and hidden_blocks say which block belongs to each gate, in the order above. bias is (gates, units), and
// a GRU that resets behind the product has a fourth row. One that resets first has two gates in weights, and the last
// one's apart. Operands: src (T, N, C), weights (H, G H), [input_weights (C, G H)], [candidate_weights (H, H)], [bias],
// state (N, H), [cell_state (N, H)]. Results: dst (T, N, H), the last state, [the last cell_state], scratch (nothing).
//
// Products are oneDNN's matmul: all of the sequence's input at once, and one a step. oneDNN's own RNN primitive demands
// its own order of gates, and took no less: with H = 512, T = 64, N = 1, 8, 32 in f32 on two busy cores of a Sapphire
// Rapids 3.3, 17 to 23, 59 to 62 ms, where the products alone, without gates, took 3.4, 10 to 20, 61.
#include <algorithm>
#include <functional>
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
#include "onednn/call.h"
#include "onednn/memory_layout.h"
#include "onednn/plan.h"
#include "onednn/primitive.h"
#include "onednn/recurrent_cells.h"
#include "onednn/recurrent_problem.h"
#include "onednn/reorder_scratch.h"

namespace hlo_dispatch::onednn {

namespace {

// So many units of one step are worth dividing.
constexpr int64_t kMinUnitsPerThread = 4096;

CallPlan PlanStep(const Attributes& attributes) {
  const RecurrentProblem problem(attributes);
  return problem.PlanStep(problem.weights);
}

// A product that every step has, with weights that are prepacked, packed once a call, or read as they are.
class StepProduct {
 public:
  StepProduct(CallPlan plan, const Tensor& weights, bool is_prepacked, MemoryLayout& memory)
      : weights_(weights), layout_(plan.prepacked), is_prepacked_(is_prepacked && layout_.bytes > 0) {
    if (!is_prepacked_ && layout_.bytes > 0) {
      pack_ = std::make_unique<Primitive>(PlanPrepack(plan));
      packed_offset_ = memory.Reserve(layout_.bytes);
      pack_scratch_offset_ = memory.Reserve(pack_->plan().scratch_bytes);
    }
    product_ = std::make_unique<Primitive>(std::move(plan));
    scratch_offset_ = memory.Reserve(product_->plan().scratch_bytes);
  }

  const std::string& implementation() const { return product_->plan().implementation; }
  BufferSpec spec() const {
    return is_prepacked_ ? BufferSpec{"weights", xla::ffi::U8, layout_.bytes} : SpecOf(weights_);
  }

  // The weights as the product reads them.
  void* Weights(const void* buffer, char* memory, const Parallel& parallel) const {
    void* const given = const_cast<void*>(buffer);
    if (is_prepacked_) return given;
    if (pack_ == nullptr) return weights_.Begin(given);
    pack_->Execute({weights_.Begin(given)}, memory + packed_offset_, memory + pack_scratch_offset_, parallel);
    return memory + packed_offset_;
  }

  void Execute(void* source, void* weights, void* to, char* memory, const Parallel& parallel) const {
    product_->Execute({source, weights}, to, memory + scratch_offset_, parallel);
  }

 private:
  Tensor weights_;
  PrepackedLayout layout_;
  bool is_prepacked_;
  std::unique_ptr<Primitive> pack_;  // null: the weights are prepacked, or read as they are
  std::unique_ptr<Primitive> product_;
  int64_t packed_offset_ = 0, pack_scratch_offset_ = 0, scratch_offset_ = 0;
};

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
        arithmetic_(ForThisProcessor(plain::kCellArithmetic, avx2::kCellArithmetic, avx512::kCellArithmetic)),
        is_prepacked_(attributes.Has("weights_format") && attributes.Text("weights_format") == "packed") {
    Library::Get().ForPool([&] {
      CallPlan step = problem_.PlanStep(problem_.weights);
      prepacked_ = step.prepacked;
      has_helpers_ = MachineSpeed::Get().RepaysHelp(4 * step.MinSeconds());
      step_ = std::make_unique<StepProduct>(std::move(step), problem_.weights, is_prepacked_, memory_);
      if (problem_.resets_first()) {
        const Tensor& weights = problem_.candidate_weights;
        candidate_ = std::make_unique<StepProduct>(problem_.PlanStep(weights), weights, false, memory_);
      }
      if (problem_.has_input_weights) input_ = std::make_unique<Primitive>(problem_.PlanInput());
    });
    if (!is_prepacked_) {
      if (attributes.Has("packed_bytes")) Invalid("attribute 'packed_bytes': expected with packed weights alone");
    }
    PlaceMemory();
    reservation_ = std::make_unique<ReorderScratchReservation>(memory_.bytes());
    operands_ = {SpecOf(problem_.source), step_->spec()};
    if (problem_.has_input_weights) operands_.push_back(SpecOf(problem_.input_weights));
    if (candidate_ != nullptr) operands_.push_back(candidate_->spec());
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
    return std::string("recurrent:") + problem_.kind.name + ":" + step_->implementation();
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
    const int64_t gates = Bytes(Product(problem_.rows, problem_.columns, "input_weights"), 4, "input_weights");
    input_offset_ = memory_.Reserve(input_ == nullptr ? 0 : Bytes(Product(problem_.steps, gates, "src"), 1, "src"));
    input_scratch_offset_ = memory_.Reserve(input_ == nullptr ? 0 : input_->plan().scratch_bytes);
    gates_offset_ = memory_.Reserve(gates);
    state_offset_ = memory_.Reserve(state);
    cell_state_offset_ = memory_.Reserve(state);
    product_offset_ = memory_.Reserve(is_half() ? state / 2 : 0);
    candidate_offset_ = memory_.Reserve(candidate_ == nullptr ? 0 : state);
    proposal_offset_ = memory_.Reserve(candidate_ == nullptr ? 0 : state);
  }

  void Run(const RoutineBuffers& buffers, const Parallel& parallel) const {
    const ReorderScratchLease lease(memory_.bytes());
    char* const memory = lease.data();
    size_t next = 1;
    void* const source = problem_.source.Begin(const_cast<void*>(buffers.operands[0]));
    void* const weights = step_->Weights(buffers.operands[next++], memory, parallel);
    const char* input = static_cast<char*>(source);
    if (input_ != nullptr) {
      void* const matrix = problem_.input_weights.Begin(const_cast<void*>(buffers.operands[next++]));
      input_->Execute({source, matrix}, memory + input_offset_, memory + input_scratch_offset_, parallel);
      input = memory + input_offset_;
    }
    void* const candidate_weights =
        candidate_ == nullptr ? nullptr : candidate_->Weights(buffers.operands[next++], memory, parallel);
    const float* bias = nullptr;
    if (problem_.has_bias) {
      bias = static_cast<const float*>(problem_.bias.Begin(const_cast<void*>(buffers.operands[next++])));
    }
    auto* const state = reinterpret_cast<float*>(memory + state_offset_);
    auto* const cell_state = reinterpret_cast<float*>(memory + cell_state_offset_);
    Widen(problem_.state, buffers.operands[next++], state);
    if (has_cell_state()) Widen(problem_.cell_state, buffers.operands[next++], cell_state);
    for (int64_t i = 0; is_half() && i < problem_.rows * problem_.units; ++i) {
      StoreNarrowed(state[i], ElementType::kBF16, memory + product_offset_, i);
    }

    void* const product_source = is_half() ? memory + product_offset_ : static_cast<void*>(state);
    auto* const destination = static_cast<char*>(problem_.destination.Begin(buffers.results[0]));
    const auto rows = [&](const std::function<void(int64_t)>& of_row) {
      const int64_t grain = std::max<int64_t>(1, kMinUnitsPerThread / problem_.units);
      parallel.For(problem_.rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) of_row(row);
      });
    };
    for (int64_t i = 0; i < problem_.steps; ++i) {
      const int64_t step = problem_.reversed ? problem_.steps - 1 - i : i;
      step_->Execute(product_source, weights, memory + gates_offset_, memory, parallel);
      const auto row_of = [&](int64_t row) { return RowOf(step, row, input, bias, memory, destination); };
      if (candidate_ != nullptr) {
        rows([&](int64_t row) { arithmetic_.reset(has_half_input(), row_of(row), problem_.units); });
        candidate_->Execute(memory + proposal_offset_, candidate_weights, memory + candidate_offset_, memory, parallel);
      }
      rows([&](int64_t row) {
        const bool half_result = problem_.destination.type == ElementType::kBF16;
        arithmetic_.step(problem_.kind.cell, has_half_input(), half_result, row_of(row), problem_.units);
      });
    }
    Narrow(problem_.state, state, buffers.results[1]);
    if (has_cell_state()) Narrow(problem_.cell_state, cell_state, buffers.results[2]);
  }

  bool has_half_input() const { return input_ == nullptr && problem_.source.type == ElementType::kBF16; }

  CellRow RowOf(int64_t step, int64_t row, const char* input, const float* bias, char* memory,
                char* destination) const {
    const int64_t units = problem_.units, columns = problem_.columns;
    const int64_t input_row = input_ != nullptr ? (step * problem_.rows + row) * columns
                                                : step * problem_.source.strides[0] + row * problem_.source.strides[1];
    auto* const products = reinterpret_cast<float*>(memory + gates_offset_) + row * problem_.state_columns;
    CellRow cell{};
    for (size_t gate = 0; gate < problem_.input_blocks.size(); ++gate) {
      const bool is_candidate = gate >= problem_.hidden_blocks.size();
      cell.hidden[gate] = is_candidate ? reinterpret_cast<float*>(memory + candidate_offset_) + row * units
                                       : products + problem_.hidden_blocks[gate] * units;
      cell.input[gate] = input + (input_row + problem_.input_blocks[gate] * units) * (has_half_input() ? 2 : 4);
    }
    for (int64_t gate = 0; bias != nullptr && gate < problem_.kind.biases; ++gate) {
      cell.bias[gate] = bias + gate * problem_.bias.strides[0];
    }
    cell.state = reinterpret_cast<float*>(memory + state_offset_) + row * units;
    cell.cell_state = reinterpret_cast<float*>(memory + cell_state_offset_) + row * units;
    cell.product = is_half() ? memory + product_offset_ + 2 * row * units : nullptr;
    cell.result = destination + (step * problem_.destination.strides[0] + row * problem_.destination.strides[1]) *
                                    (problem_.destination.type == ElementType::kBF16 ? 2 : 4);
    if (candidate_ != nullptr) {
      cell.update = products + problem_.hidden_blocks[1] * units;
      cell.proposal = memory + proposal_offset_ + (is_half() ? 2 : 4) * row * units;
    }
    return cell;
  }

  RecurrentProblem problem_;
  const CellArithmetic& arithmetic_;
  PrepackedLayout prepacked_;
  bool is_prepacked_;  // whether the attributes ask for prepacked weights
  bool has_helpers_ = false;
  MemoryLayout memory_;
  std::unique_ptr<StepProduct> step_, candidate_;
  std::unique_ptr<Primitive> input_;
  int64_t input_offset_ = 0, input_scratch_offset_ = 0, gates_offset_ = 0, state_offset_ = 0, cell_state_offset_ = 0,
          product_offset_ = 0, candidate_offset_ = 0, proposal_offset_ = 0;
  std::unique_ptr<ReorderScratchReservation> reservation_;
};

std::unique_ptr<Routine> Make(const Attributes& attributes) {
  CheckLibrary(attributes);
  return std::make_unique<Recurrent>(attributes);
}

// A routine whose weights are those of a step's primitive.
struct RecurrentKernel {
  static void Add(Kernel kernel) {
    RoutineKernel<Make>::Add(std::move(kernel));
    AddPlanner(KernelOf("hlo_dispatch.onednn.recurrent"), PlanStep);
  }
};

const Family<RecurrentKernel, kOneDnn> family("recurrent", {{}, kOneDnnPack});

}  // namespace

}  // namespace hlo_dispatch::onednn
