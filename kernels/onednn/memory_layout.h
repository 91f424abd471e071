// Layout of a call's scratch memory.
#ifndef HLO_DISPATCH_ONEDNN_MEMORY_LAYOUT_H_
#define HLO_DISPATCH_ONEDNN_MEMORY_LAYOUT_H_

#include <cstdint>

#include "common/rounding.h"

namespace hlo_dispatch::onednn {

// Bump allocator of offsets.
class MemoryLayout {
 public:
  // Where a part of so many bytes begins.
  int64_t Reserve(int64_t bytes) {
    const int64_t offset = RoundUpTo(end_, kAlignment);
    if (bytes > 0) end_ = offset + bytes;
    return offset;
  }
  // Of all parts.
  int64_t bytes() const { return end_; }

 private:
  // XLA aligns buffers to 64 bytes and a cache line has as many: the parts keep to that.
  static constexpr int64_t kAlignment = 64;

  int64_t end_ = 0;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_MEMORY_LAYOUT_H_
