// Memory for copies of operands in oneDNN's layouts, kept between calls and shared by all of them.
//
// Not part of a program's scratch memory, which is allocated anew for each run: large pieces then come from fresh
// pages of the operating system, and small ones lie wherever the program's other buffers leave room. The same few
// megabytes for all calls stay in the processor's caches.
#ifndef HLO_DISPATCH_ONEDNN_PACKING_MEMORY_H_
#define HLO_DISPATCH_ONEDNN_PACKING_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace hlo_dispatch::onednn {

// A piece of it, for one execution: the one that was given back last, made larger if need be. Aligned to pages.
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

#endif  // HLO_DISPATCH_ONEDNN_PACKING_MEMORY_H_
