#include "onednn/memory.h"

#include <limits>
#include <utility>

#include "common/checked.h"
#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

DataType ToDataType(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return kF32;
    case ElementType::kBF16:
      return kBF16;
    case ElementType::kF16:
      return kF16;
  }
  return kF32;
}

[[noreturn]] void Invalid(const std::string& message) { throw Failure(FailureKind::kInvalid, message); }

// What oneDNN's kernels count with.
constexpr int64_t kMostPerDimension = std::numeric_limits<int>::max();

// Throws unless the tensor's elements have places of their own in a buffer that there may be.
Tensor Checked(Tensor tensor) {
  if (tensor.dims.empty() || tensor.dims.size() > static_cast<size_t>(kMaximumRank)) {
    Invalid(tensor.role + ": expected 1 to 12 dimensions, got " + std::to_string(tensor.dims.size()));
  }
  if (tensor.strides.size() != tensor.dims.size()) {
    Invalid(tensor.role + ": expected as many strides as dimensions (" + std::to_string(tensor.dims.size()) +
            "), got " + std::to_string(tensor.strides.size()));
  }
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] < 1) Invalid(tensor.role + ": expected dimensions >= 1, got " + std::to_string(tensor.dims[i]));
    if (tensor.strides[i] < 1) {
      Invalid(tensor.role + ": expected strides >= 1, got " + std::to_string(tensor.strides[i]));
    }
    if (tensor.dims[i] > kMostPerDimension) {
      throw Failure(FailureKind::kUnsupported, tensor.role + ": expected dimensions of at most " +
                                                   std::to_string(kMostPerDimension) + ", got " +
                                                   std::to_string(tensor.dims[i]));
    }
  }
  Bytes(Extent(tensor.dims, tensor.strides, tensor.role), ElementBytes(tensor.type), tensor.role);
  CheckApart(tensor.dims, tensor.strides, tensor.role);
  return tensor;
}

// The same where the tensor is the whole of a buffer of so many elements, or without one the buffer itself. A stride
// along one element means nothing, but a library may compute with it.
void CheckWithin(const Tensor& tensor) {
  if (tensor.elements == 0) CheckDense(tensor.dims, tensor.strides, tensor.role);
  const int64_t most = tensor.elements > 0 ? tensor.elements : Elements(tensor.dims, tensor.role);
  for (int64_t stride : tensor.strides) {
    if (stride > most) {
      Invalid(tensor.role + ": expected strides within its buffer of " + std::to_string(most) + " elements, got " +
              std::to_string(stride));
    }
  }
}

}  // namespace

int64_t Tensor::Bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return (last + 1) * ElementBytes(type);
}

int64_t Tensor::BufferBytes() const { return elements > 0 ? elements * ElementBytes(type) : Bytes(); }

void* Tensor::Begin(void* buffer) const { return static_cast<char*>(buffer) + offset * ElementBytes(type); }

OwnedMemoryDescriptor Tensor::Describe() const {
  const Library& library = Library::Get();
  MemoryDescriptor* descriptor = nullptr;
  library.Check(library.functions().memory_desc_create_with_strides(&descriptor, static_cast<int>(dims.size()),
                                                                    dims.data(), ToDataType(type), strides.data()),
                role + ": describing its memory");
  return OwnedMemoryDescriptor(descriptor);
}

OwnedMemoryDescriptor Tensor::DescribeAnyFormat() const {
  const Library& library = Library::Get();
  MemoryDescriptor* descriptor = nullptr;
  library.Check(library.functions().memory_desc_create_with_tag(&descriptor, static_cast<int>(dims.size()), dims.data(),
                                                                ToDataType(type), kFormatAny),
                role + ": describing its memory");
  return OwnedMemoryDescriptor(descriptor);
}

Tensor Tensor::WithUnitDimension() const {
  Tensor spread = *this;
  spread.dims.insert(spread.dims.end() - 1, 1);
  spread.strides.insert(spread.strides.end() - 1, dims.back() * strides.back());
  return spread;
}

Tensor Tensor::WithSwapped(size_t first, size_t second) const {
  Tensor swapped = *this;
  std::swap(swapped.dims[first], swapped.dims[second]);
  std::swap(swapped.strides[first], swapped.strides[second]);
  return swapped;
}

Tensor Tensor::WithChannelsLast() const {
  Tensor dense = *this;
  dense.strides[1] = 1;
  int64_t step = dims[1];
  for (size_t i = dims.size() - 1; i >= 2; --i) {
    dense.strides[i] = step;
    step *= dims[i];
  }
  dense.strides[0] = step;
  return dense;
}

Tensor ReadTensor(const Attributes& attributes, const std::string& role) {
  Tensor tensor = Checked({role, ElementTypeFromName(attributes.Text(role + "_type"), role + "_type"),
                           attributes.Integers(role + "_dims"), attributes.Integers(role + "_strides")});
  if (attributes.Has(role + "_elements") || attributes.Has(role + "_offset")) {
    tensor.offset = attributes.Integer(role + "_offset");
    tensor.elements = attributes.Integer(role + "_elements");
    const int64_t whole = tensor.Bytes() / ElementBytes(tensor.type);
    if (tensor.offset < 0 || tensor.elements < 1 || whole > tensor.elements - tensor.offset) {
      Invalid(role + ": expected " + std::to_string(whole) + " elements behind offset " +
              std::to_string(tensor.offset) + ", got a buffer of " + std::to_string(tensor.elements));
    }
    ::hlo_dispatch::Bytes(tensor.elements, ElementBytes(tensor.type), "attribute '" + role + "_elements'");
  }
  CheckWithin(tensor);
  return tensor;
}

Tensor ReadOperand(const Attributes& attributes, const std::string& role) {
  Tensor tensor = Checked({role, ElementTypeFromName(attributes.Text("type"), role + ".type"),
                           attributes.Integers("dims"), attributes.Integers("strides")});
  CheckWithin(tensor);
  return tensor;
}

Tensor BiasTensor(const Attributes& attributes, int64_t length, int rank, int axis) {
  // Of all dimensions only `axis` has more than one element, so the strides of the others do not matter.
  Tensor bias{"bias", ElementTypeFromName(attributes.Text("bias_type"), "bias_type"), std::vector<int64_t>(rank, 1),
              std::vector<int64_t>(rank, length)};
  bias.dims[axis] = length;
  bias.strides[axis] = 1;
  for (int i = axis + 1; i < rank; ++i) bias.strides[i] = 1;
  return bias;
}

std::vector<int64_t> ReadIntegers(const Attributes& attributes, const std::string& name, size_t size) {
  std::vector<int64_t> values = attributes.Integers(name);
  if (values.size() != size) {
    Invalid("attribute '" + name + "': expected " + std::to_string(size) + " integers, got " +
            std::to_string(values.size()));
  }
  return values;
}

}  // namespace hlo_dispatch::onednn
