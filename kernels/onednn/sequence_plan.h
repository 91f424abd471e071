// What a sequence will do, decided from its attributes alone: its calls in order, and where what lies between them is.
#ifndef HLO_DISPATCH_ONEDNN_SEQUENCE_PLAN_H_
#define HLO_DISPATCH_ONEDNN_SEQUENCE_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/registry.h"
#include "common/routine.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

// The values of a sequence have numbers: first its operands, then its results, then those that only its members see,
// which lie in the scratch memory. The first operands may lie in one buffer together, which is the call's first
// argument then; every other one is an argument of its own.
struct SequencePlan {
  struct Member {
    std::string target;
    CallPlan plan;                     // of oneDNN's
    std::unique_ptr<Routine> routine;  // or of our own code; its second result is working memory
    std::vector<int64_t> inputs;       // the values that are its operands
    int64_t output;                    // the value that is its result
  };
  struct Value {
    BufferForm form;
    int64_t offset = -1;        // in the scratch memory, of a value that only members see; of a held one in its buffer
    int64_t written_by = -1;    // the member, or -1: it is an operand
    int64_t last_read_by = -1;  // likewise
    int64_t may_lie_over = -1;  // the value that its member can write over while it reads it, or adds to, or -1
  };

  // How many arguments the call has.
  int64_t arguments() const { return operands - held + (held > 0 ? 1 : 0); }

  // Throws Failure where the attributes are wrong, or a member cannot be planned.
  static SequencePlan Read(const Attributes& attributes);

  std::vector<Member> members;
  std::vector<Value> values;
  int64_t operands = 0;
  int64_t held = 0;        // how many of them lie in one buffer
  int64_t held_bytes = 0;  // of that buffer
  int64_t results = 0;
  int64_t members_scratch_offset = 0;  // of the scratch memory that the members share, one after the other
  int64_t scratch_bytes = 0;
  int64_t packing_bytes = 0;

 private:
  void ReadValues(const Attributes& attributes);
  void ReadMember(const Attributes& attributes, int64_t number);
  // The forms of what a member reads, and of what it writes.
  static Member MadeMember(const Attributes& given, std::vector<BufferForm>& reads, BufferForm& writes);
  Value& ValueAt(int64_t number, const std::string& what);
  void Agree(Value& value, const BufferForm& form, bool is_new, const std::string& what) const;
  int64_t Accumulated(const Attributes& given, const Member& member, int64_t number);
  int64_t Overwritten(const Member& member) const;
  bool IsWrittenOver(const Value& value, const Value& by) const;
  void CheckHeld() const;
  void CheckMemory() const;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_SEQUENCE_PLAN_H_
