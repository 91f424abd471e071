// Type and size that an operand or result of a call must have.
#ifndef HLO_DISPATCH_COMMON_BUFFER_SPEC_H_
#define HLO_DISPATCH_COMMON_BUFFER_SPEC_H_

#include <cstdint>
#include <string>

#include "common/attributes.h"
#include "common/ffi.h"
#include "common/strided_array.h"

namespace hlo_dispatch {

struct BufferSpec {
  std::string role;
  xla::ffi::DataType type = xla::ffi::F32;
  int64_t bytes = 0;

  bool HasTypeAndSizeOf(const BufferSpec& other) const { return bytes == other.bytes && type == other.type; }
  // Such as "80 bytes of f32".
  std::string InWords() const;
};

xla::ffi::DataType DataTypeOf(ElementType type);
BufferSpec SpecOf(const StridedArray& array);
// That of the working memory that was planned, the last result. Throws Failure(kInvalid) where it is less than nothing.
BufferSpec PlannedScratch(const Attributes& attributes);

// The buffer's address. Throws Failure(kInvalid) unless it has that type and size; the shape may differ, as bitcasts
// are free.
void* CheckedAddress(const BufferSpec& spec, const xla::ffi::AnyBuffer& buffer);
// That of working memory, which may be larger.
void* ScratchAddress(int64_t bytes, const xla::ffi::AnyBuffer& buffer);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_BUFFER_SPEC_H_
