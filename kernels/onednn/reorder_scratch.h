// Reorder scratch: memory for per-call copies of operands in oneDNN's layouts, pooled across calls.
//
// Not part of a program's scratch memory, which is allocated anew for each run, from fresh pages where it is large. A
// few megabytes that all calls share stay in the processor's caches.
//
// Each running call leases one block. Between calls the pool keeps at most 128 MB in all, and no more than a 64th of
// the machine's memory; larger blocks live for their call only. Blocks that no executable needs are freed.
#ifndef HLO_DISPATCH_ONEDNN_REORDER_SCRATCH_H_
#define HLO_DISPATCH_ONEDNN_REORDER_SCRATCH_H_

#include <cstddef>
#include <cstdint>

namespace hlo_dispatch::onednn {

// Declares, during its lifetime, that calls need blocks of so many bytes. The pool frees blocks larger than any
// reservation.
class ReorderScratchReservation {
 public:
  explicit ReorderScratchReservation(int64_t bytes);
  ~ReorderScratchReservation();
  ReorderScratchReservation(const ReorderScratchReservation&) = delete;
  ReorderScratchReservation& operator=(const ReorderScratchReservation&) = delete;

 private:
  const size_t bytes_;
};

// One block for one execution: the most recently released one that is large enough, else a new one. Page-aligned.
class ReorderScratchLease {
 public:
  // Throws std::bad_alloc. Zero bytes allocate nothing.
  explicit ReorderScratchLease(int64_t bytes);
  ~ReorderScratchLease();
  ReorderScratchLease(const ReorderScratchLease&) = delete;
  ReorderScratchLease& operator=(const ReorderScratchLease&) = delete;

  char* data() const { return static_cast<char*>(memory_); }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_REORDER_SCRATCH_H_
