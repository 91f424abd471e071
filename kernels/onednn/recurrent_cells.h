// Arithmetic of recurrent cells: from pre-activations and the state before to the state after, compiled once for each
// instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_ONEDNN_RECURRENT_CELLS_H_
#define HLO_DISPATCH_ONEDNN_RECURRENT_CELLS_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::onednn {

// The formulas are in recurrent.cc, and so is the order of their gates.
enum class Cell { kLstm, kGru, kGruComplement, kGruResetFirst, kGruResetFirstComplement, kTanh, kRelu };

inline constexpr int kMaxGates = 4;

// One row of one step. Pre-activation g is hidden[g] + input[g] + bias[g], but that GRU's last gate keeps the hidden
// one and bias[3] apart.
struct CellRow {
  const float* hidden[kMaxGates];
  const char* input[kMaxGates];
  const float* bias[kMaxGates];
  float* state;       // before, then after
  float* cell_state;  // likewise; LSTM's alone
  char* product;      // the state after as the next product reads it, in bf16; null: there is none
  char* result;
  float* update;   // of a GRU that resets first: its update gate, from `reset` to `step`
  char* proposal;  // what its second product reads, as `product` or in f32
};

struct CellArithmetic {
  const char* name;
  // Args: half_input, half_result: whether input and result are bf16, else f32.
  void (*step)(Cell cell, bool half_input, bool half_result, const CellRow& row, int64_t units);
  // A GRU's that resets first, ahead of its second product and of `step`.
  void (*reset)(bool half_input, const CellRow& row, int64_t units);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const CellArithmetic kCellArithmetic;)

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_RECURRENT_CELLS_H_
