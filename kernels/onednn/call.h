// XLA FFI handlers of oneDNN's calls, one pair per kernel family. Instantiation builds the primitive once and keeps it
// as the call's state; execution checks the operands against the attributes and runs it.
//
// A kernel family is registered by an object in its own file:
//
//   const Family<PlannedCall<Plan>, kOneDnn> family("matmul", {{}, kOneDnnPack, kOneDnnCallGroup});
#ifndef HLO_DISPATCH_ONEDNN_CALL_H_
#define HLO_DISPATCH_ONEDNN_CALL_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/family.h"
#include "common/ffi.h"
#include "common/raw_call.h"
#include "common/registry.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

// Reads the attributes, chooses the implementation.
using Planner = CallPlan (*)(const Attributes&);

// XLA's handlers, kernel support queries, and raw calls.
std::unique_ptr<xla::ffi::Ffi> Instantiation(const Kernel& kernel, Planner planner);
XLA_FFI_Handler* Execution();
Answer AnswerOf(const Kernel& kernel, Planner planner, const Attributes& attributes);
std::unique_ptr<RawCall> MakeRawCall(const Kernel& kernel, Planner planner, const Attributes& attributes,
                                     const std::vector<RawCall::OperandBuffer>& given);

// Throws Failure(kUnavailable) where the call was planned for another version of the library.
void CheckLibrary(const Attributes& attributes);

// A call's plan, once its attributes are found to fit this library and this machine. Throws where they do not.
CallPlan PlanChecked(const Kernel& kernel, Planner planner, const Attributes& attributes);

// Planners by kernel, for kernels whose calls contain other calls: members of a call group (call_group.cc) by target,
// and kernels with prepacked weights (prepack.cc) by name. Unknown kernels give nothing, and Failure(kInvalid).
void AddPlanner(const Kernel& kernel, Planner planner);
std::optional<std::pair<const Kernel*, Planner>> MemberPlanner(const std::string& target);
Planner PrepackablePlanner(const std::string& name);

// The kernel of a planner: what a Family's kernels of oneDNN are. XLA's handlers are plain functions, so that each
// planner has its own.
template <Planner planner>
class PlannedCall {
 public:
  static void Add(Kernel kernel) {
    kernel.plan = [](const Attributes& attributes) { return AnswerOf(*kernel_, planner, attributes); };
    kernel.raw_call = [](const Attributes& attributes, const std::vector<RawCall::OperandBuffer>& given) {
      return MakeRawCall(*kernel_, planner, attributes, given);
    };
    kernel.instantiate = Instantiate;
    kernel.execute = Execution();
    kernel_ = &Register(std::move(kernel));
    AddPlanner(*kernel_, planner);
  }

 private:
  static XLA_FFI_Error* Instantiate(XLA_FFI_CallFrame* frame) {
    static auto* handler = Instantiation(*kernel_, planner).release();
    return handler->Call(frame);
  }

  inline static const Kernel* kernel_ = nullptr;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_CALL_H_
