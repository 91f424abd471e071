// Executable primitive: built once, executed from any number of threads at once, alone or in a call group.
#ifndef HLO_DISPATCH_ONEDNN_PRIMITIVE_H_
#define HLO_DISPATCH_ONEDNN_PRIMITIVE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/parallel.h"
#include "onednn/plan.h"
#include "onednn/reorder_scratch.h"
#include "onednn/stream.h"

namespace hlo_dispatch::onednn {

class Primitive {
 public:
  explicit Primitive(CallPlan plan);
  ~Primitive();

  const CallPlan& plan() const { return plan_; }

  // Runs once and waits. `operands` has one address for each of plan().operands; own reorders use `parallel`.
  void Execute(const std::vector<void*>& operands, void* destination, void* scratch, const Parallel& parallel);

  // Runs `count` times with nothing between the library and its caller: memory objects are pointed at the buffers
  // once, and nothing is copied by us. What benchmarks call the raw library call, its reorders included.
  void Repeat(const std::vector<void*>& operands, void* destination, void* scratch, int64_t count);

 private:
  // The memory objects of one execution under way. Made when all existing ones are busy, then kept: creating
  // them costs microseconds, pointing them at other buffers nearly nothing.
  struct Context;
  friend class Submission;
  std::unique_ptr<Context> MakeContext() const;
  std::unique_ptr<Context> AcquireContext();
  // Not after an execution that failed.
  void Release(std::unique_ptr<Context> context);
  // Address of the tensor in the primitive's element type: in reorder scratch, if the buffer's is another.
  static void* Converted(const Operand& operand, void* buffer, char* reorder_scratch);
  // Address that the primitive reads or writes: in scratch memory, if the operand is reversed.
  static void* AddressOf(const Operand& operand, void* converted, char* scratch);
  void Point(Context& context, const std::vector<void*>& operands, void* destination, char* scratch,
             char* reorder_scratch) const;
  // Submits the work to the stream; the caller waits for it.
  void Submit(const Context& context, Stream* stream) const;

  CallPlan plan_;
  // Of the plan, what every call needs: the plan itself has left the caches by the time of the next one.
  bool is_plain_ = false;  // the primitive uses every buffer without reorder or reversal
  int64_t scratch_offset_ = 0;
  ReorderScratchReservation reorder_scratch_reservation_;
  OwnedPrimitive primitive_;
  std::vector<OwnedPrimitive> reorders_;  // one per operand; null where it is used as it is, or copied by us
  OwnedPrimitive destination_reorder_;
  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Context>> idle_;
};

// Submission of several primitives with one wait for some dozens of them: between two of them the library's threads
// need not return to the caller. Not thread-safe.
class Submission {
 public:
  // With the reorder scratch of the primitive that needs most.
  explicit Submission(int64_t reorder_scratch_bytes);
  // Waits for all submissions.
  ~Submission();
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // Submits the work to the library. `operands` has one address for each of plan().operands. Own reorders use
  // `parallel`, and wait for earlier submissions, which may write what they read.
  void Submit(Primitive& primitive, const std::vector<void*>& operands, void* destination, void* scratch,
              const Parallel& parallel);
  // Waits for all submissions so far. Throws on failure.
  void Wait();
  // Likewise, and releases all contexts.
  void Finish();

 private:
  // Copies operands that a primitive reads in another element type, reversed, or in a layout that our own copy makes.
  void CopyOperands(const Primitive& primitive, const std::vector<void*>& operands, char* scratch,
                    const Parallel& parallel);

  struct ActiveContext {
    Primitive* primitive;
    std::unique_ptr<Primitive::Context> context;
  };

  std::vector<ActiveContext> contexts_;
  ReorderScratchLease reorder_scratch_;
  StreamLease stream_;  // declared last, so that it is destroyed first
  const Primitive* last_submitted_ = nullptr;
  int in_flight_ = 0;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_PRIMITIVE_H_
