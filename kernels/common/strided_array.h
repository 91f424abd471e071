// An operand of a call as the attributes describe it: element type, dimensions, strides, and where in its buffer.
#ifndef HLO_DISPATCH_COMMON_STRIDED_ARRAY_H_
#define HLO_DISPATCH_COMMON_STRIDED_ARRAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/element_type.h"

namespace hlo_dispatch {

struct StridedArray {
  std::string role;  // "src", "weights", "bias", "dst", "post_op_3": how messages call it
  ElementType type;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  int64_t offset = 0;    // elements before the first one, where the array is a part of the buffer
  int64_t elements = 0;  // of the whole buffer then; 0: the array is the buffer

  // Bytes from the first to the last element; at most kMaxBytes (common/checked.h).
  int64_t Bytes() const;
  // The buffer's size; equals Bytes() unless the array is a part of it, as XLA's arrays have no holes.
  int64_t BufferBytes() const;
  // Address of the first element in that buffer.
  void* Begin(void* buffer) const;
};

// Whether elements have places of their own inside the buffer, all of it where the array is not a part; or strides may
// be 0, the same elements again.
enum class Places { kApart, kMayRepeat };

// Reads <role>_type, <role>_dims and <role>_strides; of a part of a buffer <role>_offset and <role>_elements too.
StridedArray ReadArray(const Attributes& attributes, const std::string& role, Accepted accepted = Accepted::kFloats,
                       Places places = Places::kApart);
// Reads the same without <role>_ from a nested dictionary, of a post-op or another step with an operand.
StridedArray ReadNestedArray(const Attributes& attributes, const std::string& role,
                             Accepted accepted = Accepted::kFloats, Places places = Places::kApart);

// Throws unless the operand, of a binary post-op, has a value for each of the result's elements: its dimensions, or 1
// where it repeats.
void CheckRepeats(const StridedArray& operand, const std::vector<int64_t>& dims);
// How many post-ops a call has: post_op_0, post_op_1 and so on. Throws Failure(kInvalid) where a number is left out,
// and Failure(kUnsupported) where there are more than `most`, which `whose` takes.
int CountPostOps(const Attributes& attributes, int most, const std::string& whose);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_STRIDED_ARRAY_H_
