// Blocked layouts of oneDNN: the position of each element of a tensor.
#ifndef HLO_DISPATCH_ONEDNN_BLOCKED_LAYOUT_H_
#define HLO_DISPATCH_ONEDNN_BLOCKED_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "onednn/memory.h"

namespace hlo_dispatch::onednn {

// A layout that tiles dimensions: strides are between blocks, whose elements are innermost.
struct BlockedLayout {
  struct Block {
    size_t dimension;
    int64_t size;
  };
  std::vector<int64_t> padded;   // the sizes, rounded up to whole blocks
  std::vector<int64_t> strides;  // from block to block of each dimension, in elements
  std::vector<Block> blocks;     // slowest first
  int64_t more_bytes = 0;        // behind the elements

  // Nothing for layouts of another kind, and for those that contain more than the elements, except for sums of
  // integers.
  static std::optional<BlockedLayout> Read(const MemoryDescriptor* descriptor, ElementType type);
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_BLOCKED_LAYOUT_H_
