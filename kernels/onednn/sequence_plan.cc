#include "onednn/sequence_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/checked.h"
#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/memory_layout.h"

namespace hlo_dispatch::onednn {

namespace {

// More would be no program of anybody's.
constexpr int64_t kMostMembers = 100'000;
constexpr int64_t kAlignment = 64;

[[noreturn]] void Invalid(const std::string& message) { throw Failure(FailureKind::kInvalid, message); }

int64_t ReadCount(const Attributes& attributes, const std::string& name, int64_t least) {
  const int64_t count = attributes.Integer(name);
  if (count >= least && count <= kMostMembers) return count;
  Invalid("attribute '" + name + "': expected " + std::to_string(least) + " to " + std::to_string(kMostMembers) +
          ", got " + std::to_string(count));
}

}  // namespace

SequencePlan SequencePlan::Read(const Attributes& attributes) {
  SequencePlan plan;
  plan.ReadValues(attributes);
  const int64_t members = ReadCount(attributes, "members", 1);
  int64_t scratch = 0, arena = 0;
  for (int64_t number = 0; number < members; ++number) {
    plan.ReadMember(attributes, number);
    const Member& member = plan.members.back();
    scratch = std::max(scratch, member.routine ? member.routine->results()[1].bytes : member.plan.scratch_bytes);
    plan.packing_bytes = std::max(plan.packing_bytes, member.plan.packing_bytes);
  }
  plan.CheckHeld();
  plan.CheckMemory();
  MemoryLayout memory;
  for (size_t i = static_cast<size_t>(plan.operands + plan.results); i < plan.values.size(); ++i) {
    arena = std::max(arena, plan.values[i].offset + plan.values[i].form.bytes);
  }
  memory.Reserve(arena);
  plan.members_scratch_offset = memory.Reserve(scratch);
  plan.scratch_bytes = memory.bytes();
  return plan;
}

void SequencePlan::ReadValues(const Attributes& attributes) {
  operands = ReadCount(attributes, "operands", 0);
  results = ReadCount(attributes, "results", 0);
  const std::vector<int64_t> offsets = attributes.Integers("offsets");
  values.resize(static_cast<size_t>(operands + results) + offsets.size());
  if (attributes.Has("held")) {
    const std::vector<int64_t> places = attributes.Integers("held");
    held = static_cast<int64_t>(places.size());
    if (held < 1 || held > operands) {
      Invalid("attribute 'held': expected 1 to " + std::to_string(operands) + " places, got " + std::to_string(held));
    }
    held_bytes = attributes.Integer("held_bytes");
    for (size_t i = 0; i < places.size(); ++i) values[i].offset = places[i];
  }
  for (size_t i = 0; i < offsets.size(); ++i) values[static_cast<size_t>(operands + results) + i].offset = offsets[i];
}

SequencePlan::Value& SequencePlan::ValueAt(int64_t number, const std::string& what) {
  if (number >= 0 && number < static_cast<int64_t>(values.size())) return values[static_cast<size_t>(number)];
  Invalid(what + ": expected the number of one of " + std::to_string(values.size()) + " values, got " +
          std::to_string(number));
}

void SequencePlan::Agree(Value& value, const BufferForm& form, bool is_new, const std::string& what) const {
  if (is_new) {
    value.form = form;
  } else if (!(value.form == form)) {
    Invalid(what + ": expected " + form.InWords() + ", but the value is " + value.form.InWords());
  }
}

void SequencePlan::ReadMember(const Attributes& attributes, int64_t number) {
  const std::string name = "member_" + std::to_string(number);
  try {
    const std::unique_ptr<Attributes> given = attributes.Nested(name);
    std::vector<BufferForm> reads;
    BufferForm writes;
    Member member = MadeMember(*given, reads, writes);
    if (member.inputs.size() != reads.size()) {
      Invalid("attribute 'inputs': expected " + std::to_string(reads.size()) + " values, got " +
              std::to_string(member.inputs.size()));
    }
    for (size_t i = 0; i < member.inputs.size(); ++i) {
      const std::string what =
          "operand " + (member.routine ? member.routine->operands()[i].role : member.plan.operands[i].tensor.role);
      Value& value = ValueAt(member.inputs[i], what);
      const bool is_operand = member.inputs[i] < operands;
      if (!is_operand && value.written_by < 0) Invalid(what + ": no member before this one writes the value");
      Agree(value, reads[i], is_operand && value.last_read_by < 0, what);
      value.last_read_by = number;
    }
    Value& written = ValueAt(member.output, "the result");
    if (member.output < operands || written.written_by >= 0) {
      Invalid("the result: expected a value of its own, which is no operand");
    }
    Agree(written, writes, /*is_new=*/true, "the result");
    written.written_by = written.last_read_by = number;
    written.may_lie_over = member.plan.accumulates ? Accumulated(*given, member, number) : Overwritten(member);
    members.push_back(std::move(member));
  } catch (const Failure& failure) {
    throw Failure(failure.kind(), name + ": " + failure.what());
  }
}

// What a member adds to: a value that only members see, that nobody reads from here on, and whose place the result
// takes.
int64_t SequencePlan::Accumulated(const Attributes& given, const Member& member, int64_t number) {
  const int64_t accumulated = given.Integer("accumulated");
  const int64_t inner = operands + results;
  Value& value = ValueAt(accumulated, "attribute 'accumulated'");
  const Value& written = values[static_cast<size_t>(member.output)];
  const bool is_read = std::count(member.inputs.begin(), member.inputs.end(), accumulated) > 0;
  if (accumulated < inner || value.written_by < 0 || accumulated == member.output || is_read || member.output < inner ||
      value.offset != written.offset) {
    Invalid(
        "attribute 'accumulated': expected the number of a value that lies where the result will and is not read "
        "by its member, got " +
        std::to_string(accumulated));
  }
  Agree(value, written.form, /*is_new=*/false, "attribute 'accumulated'");
  value.last_read_by = number;
  return accumulated;
}

SequencePlan::Member SequencePlan::MadeMember(const Attributes& given, std::vector<BufferForm>& reads,
                                              BufferForm& writes) {
  Member member{given.Text("target"), {}, nullptr, given.Integers("inputs"), given.Integer("output")};
  if (const auto found = MemberPlanner(member.target)) {
    member.plan = PlanChecked(*found->first, found->second, given);
    for (const Operand& operand : member.plan.operands) reads.push_back(operand.Form());
    writes = member.plan.destination.Form();
    return member;
  }
  const std::vector<const Kernel*> kernels = Kernels();
  const auto kernel = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* other) {
    return other->target() == member.target && !other->joined_by.empty() && other->make_routine != nullptr;
  });
  if (kernel == kernels.end()) Invalid("there is no kernel '" + member.target + "' that may be in a sequence");
  CheckCall(**kernel, given);
  member.routine = (*kernel)->make_routine(given);
  for (const BufferSpec& operand : member.routine->operands()) reads.push_back({operand.bytes, operand.type});
  const std::vector<BufferSpec>& results = member.routine->results();
  if (results.size() != 2) Invalid("'" + member.target + "' does not give one result and working memory");
  writes = {results[0].bytes, results[0].type};
  return member;
}

// The source of a member that reads each element of it before it writes that of the result, which is nobody's else.
int64_t SequencePlan::Overwritten(const Member& member) const {
  if (!KernelOf(member.target).may_write_over_source || member.plan.Reorders()) return -1;
  const auto lie_alike = [](const Tensor& source, const Tensor& result) {
    return source.dims == result.dims && source.strides == result.strides && source.offset == result.offset;
  };
  const bool alike = member.routine != nullptr
                         ? member.routine->may_write_over_source()
                         : lie_alike(member.plan.operands[0].tensor, member.plan.destination.tensor);
  const int64_t value = member.inputs[0];
  const bool once = std::count(member.inputs.begin(), member.inputs.end(), value) == 1;
  return alike && once ? value : -1;
}

bool SequencePlan::IsWrittenOver(const Value& value, const Value& by) const {
  return by.may_lie_over >= 0 && &values[static_cast<size_t>(by.may_lie_over)] == &value &&
         value.last_read_by == by.written_by && value.offset == by.offset && value.form == by.form;
}

// What lies in one buffer lies within it.
void SequencePlan::CheckHeld() const {
  for (int64_t i = 0; i < held; ++i) {
    const Value& value = values[static_cast<size_t>(i)];
    const bool is_aligned = value.offset >= 0 && value.offset % kAlignment == 0;
    if (is_aligned && value.form.bytes <= held_bytes && value.offset <= held_bytes - value.form.bytes) continue;
    Invalid("attribute 'held': expected multiples of " + std::to_string(kAlignment) + " below " +
            std::to_string(held_bytes) + " with place for " + value.form.InWords() + ", got " +
            std::to_string(value.offset));
  }
}

// No two values that exist at the same time share a byte, but for what is written over while it is read.
void SequencePlan::CheckMemory() const {
  std::vector<const Value*> inner;
  for (size_t i = static_cast<size_t>(operands); i < values.size(); ++i) {
    const Value& value = values[i];
    if (value.written_by < 0) Invalid("value " + std::to_string(i) + ": no member writes it");
    if (i < static_cast<size_t>(operands + results)) continue;
    if (value.offset < 0 || value.offset % kAlignment != 0 || value.offset > kMostBytes) {
      Invalid("attribute 'offsets': expected multiples of " + std::to_string(kAlignment) + ", got " +
              std::to_string(value.offset));
    }
    inner.push_back(&value);
  }
  for (int64_t i = 0; i < operands; ++i) {
    if (values[static_cast<size_t>(i)].last_read_by < 0)
      Invalid("operand " + std::to_string(i) + ": no member reads it");
  }
  for (size_t i = 0; i < inner.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Value &a = *inner[i], &b = *inner[j];
      const bool both = a.written_by <= b.last_read_by && b.written_by <= a.last_read_by;
      if (both && !IsWrittenOver(a, b) && !IsWrittenOver(b, a) && a.offset < b.offset + b.form.bytes &&
          b.offset < a.offset + a.form.bytes) {
        Invalid("attribute 'offsets': two values lie at " + std::to_string(std::max(a.offset, b.offset)) +
                " at the same time");
      }
    }
  }
}

}  // namespace hlo_dispatch::onednn
