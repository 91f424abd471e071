#include "onednn/blocked_layout.h"

#include <functional>
#include <numeric>

namespace hlo_dispatch::onednn {

std::optional<BlockedLayout> BlockedLayout::Read(const MemoryDescriptor* descriptor, ElementType type) {
  const Functions& onednn = Library::Get().functions();
  auto number = [&](Query query) {
    int value = 0;
    return onednn.memory_desc_query(descriptor, query, &value) == kSuccess ? value : 0;
  };
  auto numbers = [&](Query query, int count) {
    const int64_t* values = nullptr;
    if (onednn.memory_desc_query(descriptor, query, &values) != kSuccess) return std::vector<int64_t>();
    return std::vector<int64_t>(values, values + count);
  };
  if (number(kQueryFormatKind) != kFormatBlocked) return std::nullopt;
  const int rank = number(kQueryRank), count = number(kQueryInnerBlockCount);
  BlockedLayout layout;
  layout.padded = numbers(kQueryPaddedSizes, rank);
  layout.strides = numbers(kQueryStrides, rank);
  const std::vector<int64_t> sizes = numbers(kQueryInnerBlockSizes, count);
  const std::vector<int64_t> dimensions = numbers(kQueryInnerBlockDimensions, count);
  for (int i = 0; i < count; ++i) layout.blocks.push_back({static_cast<size_t>(dimensions[i]), sizes[i]});
  const int64_t elements =
      std::accumulate(layout.padded.begin(), layout.padded.end(), int64_t{1}, std::multiplies<int64_t>());
  layout.more_bytes = static_cast<int64_t>(onednn.memory_desc_get_size(descriptor)) - elements * ElementBytes(type);
  // For integers oneDNN appends sums to the elements; for other types such a layout is unknown.
  const bool may_have_more = IsInteger(type) && layout.more_bytes > 0;
  if (rank == 0 || (layout.more_bytes != 0 && !may_have_more)) return std::nullopt;
  return layout;
}

}  // namespace hlo_dispatch::onednn
