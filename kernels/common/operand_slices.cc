#include "common/operand_slices.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "common/checked.h"
#include "common/failure.h"

namespace hlo_dispatch {

namespace {

namespace ffi = xla::ffi;

// More than any call has.
constexpr int64_t kMaxArguments = 1'000'000;

std::string Named(const std::string& name) { return "attribute 'slices." + name + "'"; }

// One number for each slice, within bounds.
std::vector<int64_t> ReadNumbers(const Attributes& slices, const std::string& name, size_t count, int64_t least,
                                 int64_t most) {
  std::vector<int64_t> numbers = slices.Integers(name);
  if (numbers.size() != count) {
    Invalid(Named(name) + ": expected " + std::to_string(count) + " numbers, got " + std::to_string(numbers.size()));
  }
  for (int64_t number : numbers) {
    if (number >= least && number <= most) continue;
    Invalid(Named(name) + ": expected " + std::to_string(least) + " to " + std::to_string(most) + ", got " +
            std::to_string(number));
  }
  return numbers;
}

template <typename Integer>
int64_t Clamped(const void* index, int64_t count) {
  const Integer value = *static_cast<const Integer*>(index);
  if (value < Integer{0}) return 0;
  const auto largest = static_cast<uint64_t>(count - 1);
  return static_cast<int64_t>(std::min(static_cast<uint64_t>(value), largest));
}

// As dynamic-slice clamps it: the first or the last slice where there is none at the index.
int64_t ClampedIndex(const ffi::AnyBuffer& index, int64_t count) {
  if (index.element_count() != 1) {
    Invalid("index of a slice: expected a scalar, got " + std::to_string(index.element_count()) + " elements");
  }
  const void* data = index.untyped_data();
  switch (index.element_type()) {
    case ffi::S8:
      return Clamped<int8_t>(data, count);
    case ffi::S16:
      return Clamped<int16_t>(data, count);
    case ffi::S32:
      return Clamped<int32_t>(data, count);
    case ffi::S64:
      return Clamped<int64_t>(data, count);
    case ffi::U8:
      return Clamped<uint8_t>(data, count);
    case ffi::U16:
      return Clamped<uint16_t>(data, count);
    case ffi::U32:
      return Clamped<uint32_t>(data, count);
    case ffi::U64:
      return Clamped<uint64_t>(data, count);
    default:
      Invalid("index of a slice: expected an integer");
  }
}

// XLA packs two numbers of four bits into a byte.
int64_t BytesOf(ffi::DataType type, int64_t elements) {
  if (type == ffi::S4 || type == ffi::U4) return elements / 2 + elements % 2;
  return Bytes(elements, static_cast<int64_t>(ffi::ByteWidth(type)), Named("elements"));
}

}  // namespace

OperandSlices::OperandSlices(const Attributes& attributes) {
  if (!attributes.Has("slices")) return;
  const std::unique_ptr<Attributes> slices = attributes.Nested("slices");
  const std::vector<int64_t> operands = slices->Integers("operands");
  const size_t count = operands.size();
  const std::vector<int64_t> indexes = ReadNumbers(*slices, "indexes", count, 0, kMaxArguments);
  const std::vector<int64_t> counts = ReadNumbers(*slices, "counts", count, 1, kMaxBytes);
  const std::vector<int64_t> strides = ReadNumbers(*slices, "strides", count, 1, kMaxBytes);
  const std::vector<int64_t> elements = ReadNumbers(*slices, "elements", count, 1, kMaxBytes);
  if (count == 0) Invalid(Named("operands") + ": expected at least one");
  first_index_ = static_cast<size_t>(*std::min_element(indexes.begin(), indexes.end()));
  end_ = static_cast<size_t>(*std::max_element(indexes.begin(), indexes.end())) + 1;
  ReadNumbers(*slices, "operands", count, 0, static_cast<int64_t>(first_index_) - 1);
  for (size_t i = 0; i < count; ++i) {
    if (std::count(operands.begin(), operands.end(), operands[i]) > 1) {
      Invalid(Named("operands") + ": operand " + std::to_string(operands[i]) + " is there twice");
    }
    // So that sums of them do not overflow.
    Bytes(counts[i], strides[i], Named("counts"));
    all_.push_back(
        {static_cast<size_t>(operands[i]), static_cast<size_t>(indexes[i]), counts[i], strides[i], elements[i]});
  }
}

size_t OperandSlices::operands(size_t arguments) const {
  if (all_.empty()) return arguments;
  if (arguments == end_) return first_index_;
  Invalid("expected " + std::to_string(end_) + " operands with those that are indexes, got " +
          std::to_string(arguments));
}

OperandBuffers::OperandBuffers(const OperandSlices& slices, const ffi::RemainingArgs& arguments)
    : arguments_(arguments), size_(slices.operands(arguments.size())) {
  sliced_.reserve(slices.all().size());
  for (const OperandSlices::Slice& slice : slices.all()) {
    const ffi::AnyBuffer stack = *arguments.get<ffi::AnyBuffer>(slice.operand);
    const ffi::DataType type = stack.element_type();
    const int64_t whole = BytesOf(type, static_cast<int64_t>(stack.element_count()));
    if (BytesOf(type, slice.elements) > whole - (slice.count - 1) * slice.stride ||
        slice.stride % static_cast<int64_t>(ffi::ByteWidth(type)) != 0) {
      Invalid("operand " + std::to_string(slice.operand) + ": expected an array of " + std::to_string(slice.count) +
              " slices, " + std::to_string(slice.stride) + " bytes apart, got one of " + std::to_string(whole) +
              " bytes");
    }
    const int64_t index = ClampedIndex(*arguments.get<ffi::AnyBuffer>(slice.index), slice.count);
    char* begin = static_cast<char*>(stack.untyped_data()) + index * slice.stride;
    Sliced& made = sliced_.emplace_back(Sliced{slice.operand, slice.elements, {}});
    made.buffer = {sizeof(XLA_FFI_Buffer), nullptr, static_cast<XLA_FFI_DataType>(type), begin, 1, &made.elements};
  }
}

ffi::AnyBuffer OperandBuffers::operator[](size_t number) const {
  for (const Sliced& sliced : sliced_) {
    if (sliced.operand == number) return ffi::AnyBuffer(&sliced.buffer);
  }
  return *arguments_.get<ffi::AnyBuffer>(number);
}

}  // namespace hlo_dispatch
