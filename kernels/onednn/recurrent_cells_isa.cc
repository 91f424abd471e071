#include "common/vectors.h"
#include "onednn/recurrent_cells.h"

namespace hlo_dispatch::onednn::HLO_DISPATCH_ISA {

namespace {

HLO_DISPATCH_INLINE Vector LoadHalves(const char* from, int64_t count) {
  if (count == kLanes) return LoadBf16(from);
  Vector value{};
  for (int64_t i = 0; i < count; ++i) value[i] = FromBf16(reinterpret_cast<const AnyHalf*>(from)[i]);
  return value;
}

HLO_DISPATCH_INLINE void StoreHalves(char* to, Vector value, int64_t count) {
  auto* halves = reinterpret_cast<AnyHalf*>(to);
  if (count == kLanes) return StoreBf16(halves, value);
  for (int64_t i = 0; i < count; ++i) halves[i] = ToBf16(value[i]);
}

template <bool half_input>
struct Gates {
  const CellRow& row;
  int64_t at, count;

  HLO_DISPATCH_INLINE Vector Bias(int gate) const {
    return row.bias[gate] == nullptr ? Vector{} : LoadNumbers(row.bias[gate] + at, count);
  }
  HLO_DISPATCH_INLINE Vector Hidden(int gate) const { return LoadNumbers(row.hidden[gate] + at, count); }
  HLO_DISPATCH_INLINE Vector Input(int gate) const {
    if (row.input[gate] == nullptr) return Vector{};
    if constexpr (half_input)
      return LoadHalves(row.input[gate] + 2 * at, count);
    else
      return LoadNumbers(reinterpret_cast<const float*>(row.input[gate]) + at, count);
  }
  HLO_DISPATCH_INLINE Vector Sum(int gate) const { return Input(gate) + Bias(gate) + Hidden(gate); }
};

template <Cell cell, bool half_input>
HLO_DISPATCH_INLINE Vector StateAfter(const Gates<half_input>& gates) {
  const CellRow& row = gates.row;
  if constexpr (cell == Cell::kTanh) {
    return Tanh(gates.Sum(0));
  } else if constexpr (cell == Cell::kRelu) {
    const Vector sum = gates.Sum(0);
    return sum < Vector{} ? Vector{} : sum;
  } else if constexpr (cell == Cell::kLstm) {
    float* memory = row.cell_state + gates.at;
    const Vector kept = Sigmoid(gates.Sum(1)) * LoadNumbers(memory, gates.count);
    const Vector value = kept + Sigmoid(gates.Sum(0)) * Tanh(gates.Sum(2));
    StoreNumbers(memory, value, gates.count);
    return Sigmoid(gates.Sum(3)) * Tanh(value);
  } else if constexpr (cell == Cell::kGruResetFirst || cell == Cell::kGruResetFirstComplement) {
    const Vector before = LoadNumbers(row.state + gates.at, gates.count);
    const Vector update = LoadNumbers(row.update + gates.at, gates.count), proposed = Tanh(gates.Sum(2));
    const Vector keep = cell == Cell::kGruResetFirst ? update : 1.0f - update;
    const Vector take = cell == Cell::kGruResetFirst ? 1.0f - update : update;
    return keep * before + take * proposed;
  } else {
    const Vector before = LoadNumbers(row.state + gates.at, gates.count);
    const Vector reset = Sigmoid(gates.Sum(0)), update = Sigmoid(gates.Sum(1));
    const Vector proposed = Tanh(gates.Input(2) + gates.Bias(2) + reset * (gates.Hidden(2) + gates.Bias(3)));
    const Vector keep = cell == Cell::kGru ? update : 1.0f - update;
    const Vector take = cell == Cell::kGru ? 1.0f - update : update;
    return keep * before + take * proposed;
  }
}

template <Cell cell, bool half_input, bool half_result>
void Step(const CellRow& row, int64_t units) {
  for (int64_t at = 0; at < units; at += kLanes) {
    const int64_t count = units - at < kLanes ? units - at : kLanes;
    const Vector state = StateAfter<cell>(Gates<half_input>{row, at, count});
    StoreNumbers(row.state + at, state, count);
    if (row.product != nullptr) StoreHalves(row.product + 2 * at, state, count);
    if constexpr (half_result)
      StoreHalves(row.result + 2 * at, state, count);
    else
      StoreNumbers(reinterpret_cast<float*>(row.result) + at, state, count);
  }
}

template <bool half_input>
void Reset(const CellRow& row, int64_t units) {
  for (int64_t at = 0; at < units; at += kLanes) {
    const int64_t count = units - at < kLanes ? units - at : kLanes;
    const Gates<half_input> gates{row, at, count};
    const Vector reset = Sigmoid(gates.Sum(0)) * LoadNumbers(row.state + at, count);
    StoreNumbers(row.update + at, Sigmoid(gates.Sum(1)), count);
    if (row.product != nullptr)
      StoreHalves(row.proposal + 2 * at, reset, count);
    else
      StoreNumbers(reinterpret_cast<float*>(row.proposal) + at, reset, count);
  }
}

void ResetOfType(bool half_input, const CellRow& row, int64_t units) {
  half_input ? Reset<true>(row, units) : Reset<false>(row, units);
}

template <Cell cell>
void StepOfTypes(bool half_input, bool half_result, const CellRow& row, int64_t units) {
  if (half_input)
    half_result ? Step<cell, true, true>(row, units) : Step<cell, true, false>(row, units);
  else
    half_result ? Step<cell, false, true>(row, units) : Step<cell, false, false>(row, units);
}

void StepOfCell(Cell cell, bool half_input, bool half_result, const CellRow& row, int64_t units) {
  switch (cell) {
    case Cell::kLstm:
      return StepOfTypes<Cell::kLstm>(half_input, half_result, row, units);
    case Cell::kGru:
      return StepOfTypes<Cell::kGru>(half_input, half_result, row, units);
    case Cell::kGruComplement:
      return StepOfTypes<Cell::kGruComplement>(half_input, half_result, row, units);
    case Cell::kGruResetFirst:
      return StepOfTypes<Cell::kGruResetFirst>(half_input, half_result, row, units);
    case Cell::kGruResetFirstComplement:
      return StepOfTypes<Cell::kGruResetFirstComplement>(half_input, half_result, row, units);
    case Cell::kTanh:
      return StepOfTypes<Cell::kTanh>(half_input, half_result, row, units);
    case Cell::kRelu:
      return StepOfTypes<Cell::kRelu>(half_input, half_result, row, units);
  }
}

}  // namespace

const CellArithmetic kCellArithmetic = {HLO_DISPATCH_ISA_NAME, StepOfCell, ResetOfType};

}  // namespace hlo_dispatch::onednn::HLO_DISPATCH_ISA
