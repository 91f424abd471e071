// An operand as a oneDNN memory descriptor: dimensions and strides in oneDNN's order.
#ifndef HLO_DISPATCH_ONEDNN_MEMORY_H_
#define HLO_DISPATCH_ONEDNN_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/strided_array.h"
#include "onednn/library.h"

namespace hlo_dispatch::onednn {

// oneDNN's number for it.
DataType ToDataType(ElementType type);

// A buffer in f16 whose elements a primitive has in f32, in a dense copy.
struct StoredHalves {
  StridedArray array;
  std::vector<int64_t> widened_strides;  // of the copy, in the array's dimensions
};

struct Tensor : StridedArray {
  // Not null: this is the copy of such a buffer, and what other tensors are made of it are views of that copy.
  std::shared_ptr<const StoredHalves> stored = nullptr;

  // What is in the call's buffer.
  const StridedArray& buffer() const { return stored == nullptr ? *this : stored->array; }
  OwnedMemoryDescriptor Describe() const;
  // The same tensor with the format left to oneDNN.
  OwnedMemoryDescriptor DescribeAnyFormat() const;
  // The same tensor with one more dimension, of size one, before the last.
  Tensor WithUnitDimension() const;
  // The same tensor with two dimensions exchanged.
  Tensor WithSwapped(size_t first, size_t second) const;
  // Whether the strides of dimensions of more than one element descend in this order.
  bool LiesIn(const std::vector<size_t>& order) const;
  // The same tensor, its dimensions of one element with the strides of an array that is dense in this order, slowest
  // first. oneDNN's cache of primitives takes descriptors that differ in such strides alone for equal, though
  // implementation and scratch memory depend on them (3.13.2: products of depth 1, convolutions of one position).
  Tensor WithCanonicalStrides(const std::vector<size_t>& order) const;
  // The tensor in f32, dense in the order of its strides, if it is of f16 and oneDNN has no arithmetic in that on this
  // processor.
  Tensor Widened() const;
  // As many elements in a dense layout: batch slowest, then space, then dimension 1, the channels.
  Tensor WithChannelsLast() const;
};

// The order 0, 1, ….
std::vector<size_t> RowMajorOrder(size_t rank);

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
