// An operand of a call as the attributes describe it: element type, dimensions and strides in oneDNN's order.
#ifndef HLO_DISPATCH_ONEDNN_MEMORY_H_
#define HLO_DISPATCH_ONEDNN_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/element_type.h"
#include "onednn/library.h"

namespace hlo_dispatch::onednn {

struct Tensor {
  std::string role;  // "src", "weights", "bias", "dst", "post_op_3": how messages call it
  ElementType type;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  int64_t offset = 0;    // elements in front of the first one, where the buffer holds more than the tensor
  int64_t elements = 0;  // of the whole buffer then; 0: the tensor is the buffer

  // Bytes from the first to the last element; at most kMostBytes (common/checked.h).
  int64_t Bytes() const;
  // The buffer's size; equals Bytes() unless the tensor is a part of it, as XLA's arrays have no holes.
  int64_t BufferBytes() const;
  // Where the first element lies in that buffer.
  void* Begin(void* buffer) const;
  OwnedMemoryDescriptor Describe() const;
  // The same tensor with the format left to oneDNN.
  OwnedMemoryDescriptor DescribeAnyFormat() const;
  // The same tensor with one more dimension, of size one, before the last.
  Tensor WithUnitDimension() const;
  // The same tensor with two dimensions exchanged.
  Tensor WithSwapped(size_t first, size_t second) const;
  // As many elements in a dense layout: batch slowest, then space, then dimension 1, the channels.
  Tensor WithChannelsLast() const;
};

// Reads <role>_type, <role>_dims and <role>_strides; of a part of a buffer <role>_offset and <role>_elements too. All
// elements have places of their own inside the buffer, and without those two they are the whole of it.
Tensor ReadTensor(const Attributes& attributes, const std::string& role);
// Reads type, dims and strides of a nested dictionary (a binary post-op's operand).
Tensor ReadOperand(const Attributes& attributes, const std::string& role);
// A dense bias vector of `length` along axis `axis` of a tensor of rank `rank`.
Tensor BiasTensor(const Attributes& attributes, int64_t length, int rank, int axis);

// Throws unless the attribute has exactly `size` integers.
std::vector<int64_t> ReadIntegers(const Attributes& attributes, const std::string& name, size_t size);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_MEMORY_H_
