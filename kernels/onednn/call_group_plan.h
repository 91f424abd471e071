// Call group plan: the members of a call group in order, and the buffer assignment of the intermediate values.
#ifndef HLO_DISPATCH_ONEDNN_CALL_GROUP_PLAN_H_
#define HLO_DISPATCH_ONEDNN_CALL_GROUP_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/registry.h"
#include "common/routine.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

// Values are numbered: operands, then results, then intermediate values, which are in scratch memory. The first
// operands may be coalesced into one buffer, which is the call's first argument then; every other operand is one
// argument.
struct CallGroupPlan {
  struct Member {
    std::string target;
    CallPlan plan;                     // of oneDNN's
    std::unique_ptr<Routine> routine;  // or of our own code; its second result is working memory
    std::vector<int64_t> inputs;       // the values that are its operands
    int64_t output;                    // the value that is its result
  };
  struct Value {
    BufferSpec expected;
    int64_t offset = -1;        // of an intermediate value in scratch memory, of a coalesced operand in its buffer
    int64_t written_by = -1;    // the member, or -1: it is an operand
    int64_t last_read_by = -1;  // likewise
    int64_t may_alias = -1;     // the value that it may overwrite: its member's source or in-place sum target, or -1
  };

  // How many arguments the call has.
  int64_t arguments() const { return operands - coalesced + (coalesced > 0 ? 1 : 0); }

  // Throws Failure where the attributes are wrong, or a member cannot be planned.
  static CallGroupPlan Read(const Attributes& attributes);

  std::vector<Member> members;
  std::vector<Value> values;
  int64_t operands = 0;
  int64_t coalesced = 0;        // how many of them are coalesced into one buffer
  int64_t coalesced_bytes = 0;  // of that buffer
  int64_t results = 0;
  int64_t members_scratch_offset = 0;  // of the scratch memory that the members share, one after the other
  int64_t scratch_bytes = 0;
  int64_t reorder_scratch_bytes = 0;

 private:
  void ReadValues(const Attributes& attributes);
  void ReadMember(const Attributes& attributes, int64_t number);
  // Also gives the expected buffers that a member reads and writes.
  static Member PlanMember(const Attributes& call, std::vector<BufferSpec>& reads, BufferSpec& writes);
  Value& ValueAt(int64_t number, const std::string& what);
  void Agree(Value& value, const BufferSpec& expected, bool is_new, const std::string& what) const;
  int64_t SumTarget(const Attributes& call, const Member& member, int64_t number);
  int64_t AliasedSource(const Member& member) const;
  bool IsAliasedBy(const Value& value, const Value& by) const;
  void CheckCoalesced() const;
  void CheckMemory() const;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_CALL_GROUP_PLAN_H_
