// XLA FFI handlers of oneDNN's calls, one pair per kernel family. Instantiation builds the primitive once and keeps it
// as the call's state; execution checks the operands against the attributes and runs it.
//
// A kernel family is registered by an object in its own file:
//
//   const Family<Plan> family("matmul");
#ifndef HLO_DISPATCH_ONEDNN_CALL_H_
#define HLO_DISPATCH_ONEDNN_CALL_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ffi.h"
#include "common/raw_call.h"
#include "common/registry.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

// One kernel family: reads the attributes, chooses the implementation.
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

// Whether a family's calls may have prepacked weights (weights_format packed): their second operand, in the primitive's
// preferred layout.
enum class Weights { kNeverPrepacked, kMayBePrepacked };

// Whether a family's calls may be members of a call group, and write their result over their first operand there.
enum class GroupMembership { kNothing, kMember, kInPlaceMember };

// What a family does: what only copies is fast in whatever way the library does it.
enum class Does { kCompute, kOnlyCopy };

// Registers onednn.<name>. XLA's handlers are plain functions, so that each planner has its own.
template <Planner planner>
class Family {
 public:
  explicit Family(const std::string& name, Weights weights = Weights::kNeverPrepacked,
                  GroupMembership membership = GroupMembership::kMember, Does does = Does::kCompute) {
    Kernel kernel;
    kernel.name = "onednn." + name;
    kernel.library = "oneDNN";
    kernel.plan = [](const Attributes& attributes) { return AnswerOf(*kernel_, planner, attributes); };
    kernel.raw_call = [](const Attributes& attributes, const std::vector<RawCall::OperandBuffer>& given) {
      return MakeRawCall(*kernel_, planner, attributes, given);
    };
    kernel.instantiate = Instantiate;
    kernel.execute = Execution();
    if (weights == Weights::kMayBePrepacked) {
      kernel.packed_by = "onednn.pack";
    }
    if (membership != GroupMembership::kNothing) kernel.joined_by = "onednn.sequence";
    kernel.may_write_over_source = membership == GroupMembership::kInPlaceMember;
    kernel.only_copies = does == Does::kOnlyCopy;
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
