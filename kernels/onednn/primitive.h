// A built primitive, executed any number of times from any number of threads at once.
#ifndef HLO_DISPATCH_ONEDNN_PRIMITIVE_H_
#define HLO_DISPATCH_ONEDNN_PRIMITIVE_H_

#include <memory>
#include <mutex>
#include <vector>

#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

class Primitive {
 public:
  explicit Primitive(CallPlan plan);
  ~Primitive();

  const CallPlan& plan() const { return plan_; }

  // Runs once and waits. `operands` has one address for each of plan().operands.
  void Execute(const std::vector<void*>& operands, void* destination, void* scratch);

 private:
  // The memory objects of one execution under way. Made when all existing ones are busy, then kept: creating
  // them costs microseconds, pointing them at other buffers nearly nothing.
  struct Context;
  class ContextLease;
  std::unique_ptr<Context> MakeContext() const;

  CallPlan plan_;
  OwnedPrimitive primitive_;
  std::vector<OwnedPrimitive> reorders_;  // one per operand; null where it is used as it is
  OwnedPrimitive destination_reorder_;
  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Context>> idle_;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_PRIMITIVE_H_
