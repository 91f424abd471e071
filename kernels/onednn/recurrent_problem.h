// A recurrent layer as its call's attributes describe it (recurrent.cc), and the plans of its products.
#ifndef HLO_DISPATCH_ONEDNN_RECURRENT_PROBLEM_H_
#define HLO_DISPATCH_ONEDNN_RECURRENT_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "common/attributes.h"
#include "onednn/memory.h"
#include "onednn/plan.h"
#include "onednn/recurrent_cells.h"

namespace hlo_dispatch::onednn {

struct RecurrentKind {
  const char* name;  // the attribute's
  Cell cell;
  int64_t gates, biases;
  int64_t state_gates;  // whose columns `weights` has
};

struct RecurrentProblem {
  // Throws where the attributes describe none.
  explicit RecurrentProblem(const Attributes& attributes);

  bool resets_first() const { return kind.state_gates < kind.gates; }

  // One step's product of the state, or of what a GRU that resets first proposes.
  CallPlan PlanStep(const Tensor& matrix) const;
  // That of all steps' input: of one matrix where its rows lie at equal distances.
  CallPlan PlanInput() const;

  const RecurrentKind& kind;
  bool reversed;
  Tensor source, state, destination;
  bool has_input_weights, has_bias = false;
  std::vector<int64_t> input_blocks, hidden_blocks;
  Tensor weights, candidate_weights, input_weights, cell_state, bias;
  int64_t steps = 0, rows = 0, units = 0, columns = 0, state_columns = 0;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_RECURRENT_PROBLEM_H_
