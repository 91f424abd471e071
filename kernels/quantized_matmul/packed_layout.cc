#include "quantized_matmul/packed_layout.h"

#include <algorithm>
#include <cstring>

#include "common/processor.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

constexpr int64_t kStepRows = 4;
constexpr uint8_t kZeroOfEightBits = 0x80, kZerosOfFourBits = 0x88;

// One panel: rows [0, depth) of `columns` columns from a place on, which are rows or columns that lie side by side.
struct PanelOf {
  const uint8_t* weights;
  int64_t place, row_stride, column_stride;
  int64_t depth, columns;
  uint8_t* to;
};

void PackEightBits(const PanelOf& panel) {
  for (int64_t k = 0; k < panel.depth; ++k) {
    const uint8_t* const from = panel.weights + panel.place + k * panel.row_stride;
    uint8_t* const to = panel.to + (k / kStepRows * kPanelColumns * kStepRows + k % kStepRows);
    for (int64_t i = 0; i < panel.columns; ++i) to[i * kStepRows] = from[i * panel.column_stride] ^ kZeroOfEightBits;
  }
}

void PackFourBits(const PanelOf& panel) {
  for (int64_t k = 0; k < panel.depth; ++k) {
    const int64_t row = panel.place + k * panel.row_stride;
    uint8_t* const to = panel.to + (k / kPackedRowGrain * kPanelColumns * kStepRows + k % kStepRows);
    const bool is_upper = k % kPackedRowGrain >= kStepRows;
    for (int64_t i = 0; i < panel.columns; ++i) {
      const int64_t place = row + i * panel.column_stride;
      const auto number = static_cast<uint8_t>((panel.weights[place / 2] >> place % 2 * 4 & 15) ^ 8);
      uint8_t& byte = to[i * kStepRows];
      byte = static_cast<uint8_t>(is_upper ? (byte & 15) | number << 4 : (byte & 0xf0) | number);
    }
  }
}

}  // namespace

std::string PackedLayout::name() const {
  return std::string(is_four_bits_ ? "s4" : "s8") + " " + std::to_string(panels_) + " panels of " +
         std::to_string(depth_) + "x" + std::to_string(kPanelColumns) + " in steps of " + std::to_string(kStepRows);
}

void PackedLayout::Pack(const Weights& weights, const void* from, void* to, const Parallel& parallel) const {
  parallel.For(panels_, /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const int64_t column = number * kPanelColumns;
      const int64_t row_stride = weights.has_contiguous_columns ? weights.distance : 1;
      const int64_t column_stride = weights.has_contiguous_columns ? 1 : weights.distance;
      const PanelOf panel{static_cast<const uint8_t*>(from),
                          weights.offset + column * column_stride,
                          row_stride,
                          column_stride,
                          weights.depth,
                          std::min(kPanelColumns, weights.columns - column),
                          static_cast<uint8_t*>(to) + number * panel_bytes()};
      std::memset(panel.to, is_four_bits_ ? kZerosOfFourBits : kZeroOfEightBits, static_cast<size_t>(panel_bytes()));
      is_four_bits_ ? PackFourBits(panel) : PackEightBits(panel);
    }
  });
}

std::optional<PrepackedWeights> PrepackedOf(const Problem& problem) {
  if (!problem.may_be_prepacked) return std::nullopt;
  // Packed bytes have an order of their own already, and groups of the source are to be whole steps.
  if (!problem.has_integer_weights() || problem.weights.block > 0 || !HasAvx512Vnni() ||
      problem.source_group % kPackedRowGrain != 0) {
    return PrepackedWeights{};
  }
  const PackedLayout layout(problem.weights);
  return PrepackedWeights{layout.bytes(), layout.name()};
}

}  // namespace hlo_dispatch::quantized_matmul
