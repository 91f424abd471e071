#include "common/buffer_spec.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

namespace ffi = xla::ffi;

BufferSpec SpecOf(const ffi::AnyBuffer& buffer) {
  return {"", buffer.element_type(), static_cast<int64_t>(buffer.size_bytes())};
}

}  // namespace

std::string BufferSpec::InWords() const {
  std::ostringstream name;
  name << type;
  std::string text = name.str();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return std::to_string(bytes) + " bytes of " + text;
}

ffi::DataType DataTypeOf(ElementType type) {
  constexpr ffi::DataType kTypes[] = {ffi::F64, ffi::F32, ffi::BF16, ffi::F16, ffi::S8,
                                      ffi::U8,  ffi::S16, ffi::S32,  ffi::PRED};
  return kTypes[static_cast<size_t>(type)];
}

BufferSpec SpecOf(const StridedArray& array) { return {array.role, DataTypeOf(array.type), array.BufferBytes()}; }

BufferSpec PlannedScratch(const Attributes& attributes) {
  const int64_t bytes = attributes.Integer("scratch");
  if (bytes >= 0) return {"scratch", ffi::U8, bytes};
  Invalid("attribute 'scratch': expected at least 0, got " + std::to_string(bytes));
}

void* CheckedAddress(const BufferSpec& spec, const ffi::AnyBuffer& buffer) {
  if (buffer.element_type() == spec.type && static_cast<int64_t>(buffer.size_bytes()) == spec.bytes) {
    return buffer.untyped_data();
  }
  Invalid(spec.role + ": expected " + spec.InWords() + ", got " + SpecOf(buffer).InWords());
}

void* ScratchAddress(int64_t bytes, const ffi::AnyBuffer& buffer) {
  if (buffer.element_type() == ffi::U8 && static_cast<int64_t>(buffer.size_bytes()) >= bytes) {
    return buffer.untyped_data();
  }
  Invalid("scratch: expected at least " + std::to_string(bytes) + " bytes of u8, got " + SpecOf(buffer).InWords());
}

}  // namespace hlo_dispatch
