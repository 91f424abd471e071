#include "onednn/prepacked_layout.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onednn/blocked_layout.h"

namespace hlo_dispatch::onednn {

namespace {

std::string Joined(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : "x") + std::to_string(number);
  return text;
}

// Such as "bf16 64x3x7x7 padded 64x4x7x7 strides 12544x3136x448x64 blocks 2:1 64:0 2:1": each block is its size and the
// dimension that it cuts, slowest first.
std::string Described(const Tensor& weights, const BlockedLayout& layout, bool reversed) {
  std::string text = std::string(ElementTypeName(weights.type)) + " " + Joined(weights.dims) + " padded " +
                     Joined(layout.padded) + " strides " + Joined(layout.strides) + " blocks";
  for (const auto& block : layout.blocks) {
    text += " " + std::to_string(block.size) + ":" + std::to_string(block.dimension);
  }
  if (layout.more_bytes > 0) text += " and " + std::to_string(layout.more_bytes) + " bytes of sums";
  return text + (reversed ? " back to front" : "");
}

}  // namespace

PrepackedLayout PrepackedLayout::Of(const Tensor& weights, const MemoryDescriptor* preferred, bool reversed) {
  const Functions& onednn = Library::Get().functions();
  // Weights of f16 that the primitive has in f32 are widened, if no more.
  if (!reversed && weights.stored == nullptr && onednn.memory_desc_equal(weights.Describe().get(), preferred))
    return {};
  const std::optional<BlockedLayout> layout = BlockedLayout::Read(preferred, weights.type);
  if (!layout.has_value()) return {};
  return {{static_cast<int64_t>(onednn.memory_desc_get_size(preferred)), Described(weights, *layout, reversed)},
          reversed};
}

}  // namespace hlo_dispatch::onednn
