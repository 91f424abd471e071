// An operand as a oneDNN memory descriptor: dimensions and strides in oneDNN's order.
#ifndef HLO_DISPATCH_ONEDNN_MEMORY_H_
#define HLO_DISPATCH_ONEDNN_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/strided_array.h"
#include "onednn/library.h"

namespace hlo_dispatch::onednn {

// oneDNN's number for it.
DataType ToDataType(ElementType type);

struct Tensor : StridedArray {
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

// As ReadArray and ReadNestedArray read them.
Tensor ReadTensor(const Attributes& attributes, const std::string& role,
                  Accepted accepted = Accepted::kFloatsAndIntegers);
Tensor ReadOperand(const Attributes& attributes, const std::string& role);
// A dense bias vector of `length` along axis `axis` of a tensor of rank `rank`.
Tensor BiasTensor(const Attributes& attributes, int64_t length, int rank, int axis);

// Throws unless the attribute has exactly `size` integers.
std::vector<int64_t> ReadIntegers(const Attributes& attributes, const std::string& name, size_t size);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_MEMORY_H_
