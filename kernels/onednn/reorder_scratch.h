// Memory for copies of operands in oneDNN's layouts, kept between calls and shared by all of them.
//
// Not part of a program's scratch memory, which is allocated anew for each run: large pieces then come from fresh
// pages of the operating system, and small ones lie wherever the program's other buffers leave room. The same few
// megabytes for all calls stay in the processor's caches.
//
// A call under way has a piece of its own. Between calls at most 128 MB are kept in all, and no more than a 64th of the
// machine's memory; what does not fit is there for its call only. What no executable needs any more is given back.
#ifndef HLO_DISPATCH_ONEDNN_REORDER_SCRATCH_H_
#define HLO_DISPATCH_ONEDNN_REORDER_SCRATCH_H_

#include <cstddef>
#include <cstdint>

namespace hlo_dispatch::onednn {

// Says that there are calls which need pieces of so many bytes, as long as it lives. Pieces larger than any call needs
// are not kept.
class PackingNeed {
 public:
  explicit PackingNeed(int64_t bytes);
  ~PackingNeed();
  PackingNeed(const PackingNeed&) = delete;
  PackingNeed& operator=(const PackingNeed&) = delete;

 private:
  const size_t bytes_;
};

// A piece of it, for one execution: the one that was given back last of those that are large enough, or else the last
// one, made larger. Aligned to pages.
class PackingLease {
 public:
  // Throws std::bad_alloc. Nothing is allocated for no bytes.
  explicit PackingLease(int64_t bytes);
  ~PackingLease();
  PackingLease(const PackingLease&) = delete;
  PackingLease& operator=(const PackingLease&) = delete;

  char* data() const { return static_cast<char*>(memory_); }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_REORDER_SCRATCH_H_
