#include "onednn/call_group_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/checked.h"
#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/memory_layout.h"

namespace hlo_dispatch::onednn {

namespace {

// More than any program has.
constexpr int64_t kMaxMembers = 100'000;
constexpr int64_t kAlignment = 64;

int64_t ReadCount(const Attributes& attributes, const std::string& name, int64_t least) {
  const int64_t count = attributes.Integer(name);
  if (count >= least && count <= kMaxMembers) return count;
  Invalid("attribute '" + name + "': expected " + std::to_string(least) + " to " + std::to_string(kMaxMembers) +
          ", got " + std::to_string(count));
}

}  // namespace

CallGroupPlan CallGroupPlan::Read(const Attributes& attributes) {
  CallGroupPlan plan;
  plan.ReadValues(attributes);
  const int64_t members = ReadCount(attributes, "members", 1);
  int64_t scratch = 0, intermediates_bytes = 0;
  for (int64_t number = 0; number < members; ++number) {
    plan.ReadMember(attributes, number);
    const Member& member = plan.members.back();
    scratch = std::max(scratch, member.routine ? member.routine->results()[1].bytes : member.plan.scratch_bytes);
    plan.reorder_scratch_bytes = std::max(plan.reorder_scratch_bytes, member.plan.reorder_scratch_bytes);
  }
  plan.CheckCoalesced();
  plan.CheckMemory();
  MemoryLayout memory;
  for (size_t i = static_cast<size_t>(plan.operands + plan.results); i < plan.values.size(); ++i) {
    intermediates_bytes = std::max(intermediates_bytes, plan.values[i].offset + plan.values[i].expected.bytes);
  }
  memory.Reserve(intermediates_bytes);
  plan.members_scratch_offset = memory.Reserve(scratch);
  plan.scratch_bytes = memory.bytes();
  return plan;
}

void CallGroupPlan::ReadValues(const Attributes& attributes) {
  operands = ReadCount(attributes, "operands", 0);
  results = ReadCount(attributes, "results", 0);
  const std::vector<int64_t> offsets = attributes.Integers("offsets");
  values.resize(static_cast<size_t>(operands + results) + offsets.size());
  for (int64_t i = 0; i < operands + results; ++i) {
    values[static_cast<size_t>(i)].expected.role =
        i < operands ? "operand " + std::to_string(i) : "result " + std::to_string(i - operands);
  }
  if (attributes.Has("held")) {
    const std::vector<int64_t> places = attributes.Integers("held");
    coalesced = static_cast<int64_t>(places.size());
    if (coalesced < 1 || coalesced > operands) {
      Invalid("attribute 'held': expected 1 to " + std::to_string(operands) + " places, got " +
              std::to_string(coalesced));
    }
    coalesced_bytes = attributes.Integer("held_bytes");
    for (size_t i = 0; i < places.size(); ++i) values[i].offset = places[i];
  }
  for (size_t i = 0; i < offsets.size(); ++i) values[static_cast<size_t>(operands + results) + i].offset = offsets[i];
}

CallGroupPlan::Value& CallGroupPlan::ValueAt(int64_t number, const std::string& what) {
  if (number >= 0 && number < static_cast<int64_t>(values.size())) return values[static_cast<size_t>(number)];
  Invalid(what + ": expected the number of one of " + std::to_string(values.size()) + " values, got " +
          std::to_string(number));
}

void CallGroupPlan::Agree(Value& value, const BufferSpec& expected, bool is_new, const std::string& what) const {
  if (is_new) {
    value.expected = {value.expected.role, expected.type, expected.bytes};
  } else if (!value.expected.HasTypeAndSizeOf(expected)) {
    Invalid(what + ": expected " + expected.InWords() + ", but the value is " + value.expected.InWords());
  }
}

void CallGroupPlan::ReadMember(const Attributes& attributes, int64_t number) {
  const std::string name = "member_" + std::to_string(number);
  try {
    const std::unique_ptr<Attributes> call = attributes.Nested(name);
    std::vector<BufferSpec> reads;
    BufferSpec writes;
    Member member = PlanMember(*call, reads, writes);
    if (member.inputs.size() != reads.size()) {
      Invalid("attribute 'inputs': expected " + std::to_string(reads.size()) + " values, got " +
              std::to_string(member.inputs.size()));
    }
    for (size_t i = 0; i < member.inputs.size(); ++i) {
      const std::string what = "operand " + reads[i].role;
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
    written.may_alias = member.plan.sums_in_place ? SumTarget(*call, member, number) : AliasedSource(member);
    members.push_back(std::move(member));
  } catch (const Failure& failure) {
    throw Failure(failure.kind(), name + ": " + failure.what());
  }
}

// The target of a member's in-place sum: an intermediate value at its last use, at the offset of the result.
int64_t CallGroupPlan::SumTarget(const Attributes& call, const Member& member, int64_t number) {
  const int64_t target = call.Integer("accumulated");
  const int64_t intermediates = operands + results;
  Value& value = ValueAt(target, "attribute 'accumulated'");
  const Value& written = values[static_cast<size_t>(member.output)];
  const bool is_read = std::count(member.inputs.begin(), member.inputs.end(), target) > 0;
  if (target < intermediates || value.written_by < 0 || target == member.output || is_read ||
      member.output < intermediates || value.offset != written.offset) {
    Invalid(
        "attribute 'accumulated': expected the number of a value that lies where the result will and is not read "
        "by its member, got " +
        std::to_string(target));
  }
  Agree(value, written.expected, /*is_new=*/false, "attribute 'accumulated'");
  value.last_read_by = number;
  return target;
}

CallGroupPlan::Member CallGroupPlan::PlanMember(const Attributes& call, std::vector<BufferSpec>& reads,
                                                BufferSpec& writes) {
  Member member{call.Text("target"), {}, nullptr, call.Integers("inputs"), call.Integer("output")};
  if (call.Has("slices")) Invalid("attribute 'slices': expected in the sequence, whose operands they are");
  if (const auto found = MemberPlanner(member.target)) {
    member.plan = PlanChecked(*found->first, found->second, call);
    for (const Operand& operand : member.plan.operands) reads.push_back(operand.spec());
    writes = member.plan.destination.spec();
    return member;
  }
  const std::vector<const Kernel*> kernels = Kernels();
  const auto kernel = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* other) {
    return other->target() == member.target && !other->joined_by.empty() && other->make_routine != nullptr;
  });
  if (kernel == kernels.end()) Invalid("there is no kernel '" + member.target + "' that may be in a sequence");
  CheckCall(**kernel, call);
  member.routine = (*kernel)->make_routine(call);
  reads = member.routine->operands();
  const std::vector<BufferSpec>& results = member.routine->results();
  if (results.size() != 2) Invalid("'" + member.target + "' does not give one result and working memory");
  writes = results[0];
  return member;
}

// The source that a member may overwrite: it reads each element before it writes the same one of the result.
int64_t CallGroupPlan::AliasedSource(const Member& member) const {
  if (!KernelOf(member.target).may_write_over_source || member.plan.Reorders()) return -1;
  const auto have_equal_layouts = [](const Tensor& source, const Tensor& result) {
    return source.dims == result.dims && source.strides == result.strides && source.offset == result.offset;
  };
  const bool is_equal_layout = member.routine != nullptr
                                   ? member.routine->may_write_over_source()
                                   : have_equal_layouts(member.plan.operands[0].tensor, member.plan.destination.tensor);
  const int64_t value = member.inputs[0];
  const bool once = std::count(member.inputs.begin(), member.inputs.end(), value) == 1;
  return is_equal_layout && once ? value : -1;
}

bool CallGroupPlan::IsAliasedBy(const Value& value, const Value& by) const {
  return by.may_alias >= 0 && &values[static_cast<size_t>(by.may_alias)] == &value &&
         value.last_read_by == by.written_by && value.offset == by.offset &&
         value.expected.HasTypeAndSizeOf(by.expected);
}

// Coalesced operands are within their buffer.
void CallGroupPlan::CheckCoalesced() const {
  for (int64_t i = 0; i < coalesced; ++i) {
    const Value& value = values[static_cast<size_t>(i)];
    const bool is_aligned = value.offset >= 0 && value.offset % kAlignment == 0;
    if (is_aligned && value.expected.bytes <= coalesced_bytes && value.offset <= coalesced_bytes - value.expected.bytes)
      continue;
    Invalid("attribute 'held': expected multiples of " + std::to_string(kAlignment) + " below " +
            std::to_string(coalesced_bytes) + " with place for " + value.expected.InWords() + ", got " +
            std::to_string(value.offset));
  }
}

// Values with overlapping live ranges share no byte, except for overwritten sources.
void CallGroupPlan::CheckMemory() const {
  std::vector<const Value*> intermediates;
  for (size_t i = static_cast<size_t>(operands); i < values.size(); ++i) {
    const Value& value = values[i];
    if (value.written_by < 0) Invalid("value " + std::to_string(i) + ": no member writes it");
    if (i < static_cast<size_t>(operands + results)) continue;
    if (value.offset < 0 || value.offset % kAlignment != 0 || value.offset > kMaxBytes) {
      Invalid("attribute 'offsets': expected multiples of " + std::to_string(kAlignment) + ", got " +
              std::to_string(value.offset));
    }
    intermediates.push_back(&value);
  }
  for (int64_t i = 0; i < operands; ++i) {
    if (values[static_cast<size_t>(i)].last_read_by < 0)
      Invalid("operand " + std::to_string(i) + ": no member reads it");
  }
  for (size_t i = 0; i < intermediates.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Value &a = *intermediates[i], &b = *intermediates[j];
      const bool both = a.written_by <= b.last_read_by && b.written_by <= a.last_read_by;
      if (both && !IsAliasedBy(a, b) && !IsAliasedBy(b, a) && a.offset < b.offset + b.expected.bytes &&
          b.offset < a.offset + a.expected.bytes) {
        Invalid("attribute 'offsets': two values lie at " + std::to_string(std::max(a.offset, b.offset)) +
                " at the same time");
      }
    }
  }
}

}  // namespace hlo_dispatch::onednn
