// Layout of prepacked integer weights: panels of kPanelColumns columns, each of them contiguous and in steps of four
// rows, of which a column has its numbers side by side. Numbers are unsigned, larger by half their range, as VNNI
// multiplies them; of those with four bits a byte has one row's in the lower half, and that of the row four further on
// in the upper half.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_PACKED_LAYOUT_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_PACKED_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/parallel.h"
#include "common/prepacked_weights.h"
#include "common/rounding.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

inline constexpr int64_t kPanelColumns = 64;
// Rows are padded to a multiple of so many.
inline constexpr int64_t kPackedRowGrain = 8;

class PackedLayout {
 public:
  explicit PackedLayout(const Weights& weights)
      : is_four_bits_(weights.type == WeightsType::kS4),
        depth_(RoundUpTo(weights.depth, kPackedRowGrain)),
        panels_(CeilOfRatio(weights.columns, kPanelColumns)) {}

  int64_t depth() const { return depth_; }
  int64_t panel_bytes() const { return depth_ * kPanelColumns / (is_four_bits_ ? 2 : 1); }
  int64_t bytes() const { return panels_ * panel_bytes(); }
  std::string name() const;
  // Writes the packed weights; `from` is the buffer that they are in.
  void Pack(const Weights& weights, const void* from, void* to, const Parallel& parallel) const;

 private:
  bool is_four_bits_;
  int64_t depth_, panels_;
};

// What a call's attributes ask for, of 0 bytes where this processor has no use for it; null: nothing.
std::optional<PrepackedWeights> PrepackedOf(const Problem& problem);

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_PACKED_LAYOUT_H_
