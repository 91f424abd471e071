#include "onednn/raw_call.h"

#include <cstring>
#include <new>
#include <random>
#include <string>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr size_t kAlignment = 64;  // as XLA aligns its buffers

// A value is a random sign and random digits behind the exponent of one half: no zeros, no subnormals.
template <typename Bits>
void Fill(void* memory, int64_t bytes, Bits half, int digits) {
  std::minstd_rand random(1);
  char* at = static_cast<char*>(memory);
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits mask = static_cast<Bits>((Bits{1} << digits) - 1);
  for (int64_t offset = 0; offset + static_cast<int64_t>(sizeof(Bits)) <= bytes; offset += sizeof(Bits)) {
    const auto drawn = static_cast<uint32_t>(random());
    Bits value = static_cast<Bits>(half | (static_cast<Bits>(drawn) & mask));
    if ((drawn >> 30) & 1) value = static_cast<Bits>(value | sign);
    std::memcpy(at + offset, &value, sizeof(Bits));
  }
}

void Fill(void* memory, ElementType type, int64_t bytes) {
  switch (type) {
    case ElementType::kF64:
      return Fill<uint64_t>(memory, bytes, 0x3fe0000000000000u, 52);
    case ElementType::kF32:
      return Fill<uint32_t>(memory, bytes, 0x3f000000u, 23);
    case ElementType::kBF16:
      return Fill<uint16_t>(memory, bytes, 0x3f00, 7);
    case ElementType::kF16:
      return Fill<uint16_t>(memory, bytes, 0x3800, 10);
    case ElementType::kS8:
    case ElementType::kU8:
    case ElementType::kS16:
    case ElementType::kS32:
    case ElementType::kPred:
      return Fill<uint8_t>(memory, bytes, 0, 7);
  }
}

// The plan with the library's reorders instead of own copies.
CallPlan WithLibraryReorders(CallPlan plan) {
  for (Operand& operand : plan.operands) operand.reorder.copy.reset();
  return plan;
}

// There is no library call that does what a call with own conversions does.
void CheckType(const Operand& operand) {
  if (!operand.conversion.has_value()) return;
  Unsupported(operand.tensor.role + ": oneDNN has no arithmetic in f16 on this processor");
}

}  // namespace

RawPrimitive::Bytes RawPrimitive::Allocate(int64_t bytes) {
  const size_t rounded = (static_cast<size_t>(bytes) + kAlignment) / kAlignment * kAlignment;
  Bytes memory(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  // Touched here, so that no run pays for the operating system's first look at a page.
  std::memset(memory.get(), 0, rounded);
  return memory;
}

RawPrimitive::RawPrimitive(CallPlan plan, const std::vector<OperandBuffer>& given)
    : primitive_(WithLibraryReorders(std::move(plan))) {
  const CallPlan& built = primitive_.plan();
  for (const Operand& operand : built.operands) CheckType(operand);
  CheckType(built.destination);
  const auto given_for = [&](size_t i, const Operand& operand) -> void* {
    if (i >= given.size() || given[i].address == nullptr) return nullptr;
    if (given[i].bytes == operand.BufferBytes()) return operand.Begin(given[i].address);
    Invalid(operand.tensor.role + ": expected " + std::to_string(operand.BufferBytes()) + " bytes, got " +
            std::to_string(given[i].bytes));
  };
  for (size_t i = 0; i < built.operands.size(); ++i) {
    const Operand& operand = built.operands[i];
    if (void* address = given_for(i, operand)) {
      operands_.push_back(address);
      continue;
    }
    const int64_t bytes = operand.is_prepacked() ? operand.packed_bytes : operand.tensor.Bytes();
    own_.push_back(Allocate(bytes));
    Fill(own_.back().get(), operand.tensor.type, bytes);
    operands_.push_back(own_.back().get());
  }
  destination_ = given_for(built.operands.size(), built.destination);
  if (destination_ == nullptr) {
    own_.push_back(Allocate(built.destination.BufferBytes()));
    destination_ = own_.back().get();
  }
  scratch_ = Allocate(built.scratch_bytes);
}

void RawPrimitive::Run(int64_t count) { primitive_.Repeat(operands_, destination_, scratch_.get(), count); }

}  // namespace hlo_dispatch::onednn
