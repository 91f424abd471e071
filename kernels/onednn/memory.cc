#include "onednn/memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

// Asks the library itself, which a variable of its own may keep from using what the processor has.
bool FindF16() {
  const Library& library = Library::Get();
  const Tensor one{{"probe", ElementType::kF16, {1, 1}, {1, 1}}};
  OwnedMemoryDescriptor memory = one.Describe();
  PrimitiveDescriptor* descriptor = nullptr;
  const Status status = library.functions().matmul_primitive_desc_create(&descriptor, library.engine(), memory.get(),
                                                                         memory.get(), nullptr, memory.get(), nullptr);
  const OwnedDescriptor owned(descriptor);
  return status == kSuccess;
}

}  // namespace

DataType ToDataType(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return kF32;
    case ElementType::kBF16:
      return kBF16;
    case ElementType::kF16:
      return kF16;
    case ElementType::kS8:
      return kS8;
    case ElementType::kU8:
      return kU8;
    case ElementType::kS32:
      return kS32;
    case ElementType::kF64:
    case ElementType::kS16:
    case ElementType::kPred:
      break;
  }
  Unsupported(std::string("oneDNN is given no ") + ElementTypeName(type));
}

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

bool Tensor::LiesIn(const std::vector<size_t>& order) const {
  std::vector<int64_t> others;
  for (const size_t i : order) {
    if (dims[i] > 1) others.push_back(strides[i]);
  }
  return std::is_sorted(others.rbegin(), others.rend());
}

Tensor Tensor::WithCanonicalStrides(const std::vector<size_t>& order) const {
  Tensor canonical = *this;
  int64_t extent = 1;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if (dims[*i] == 1) canonical.strides[*i] = extent;
    extent = std::max(extent, dims[*i] * canonical.strides[*i]);
  }
  return canonical;
}

Tensor Tensor::Widened() const {
  if (type != ElementType::kF16) return *this;
  static const bool has_f16 = FindF16();
  if (has_f16) return *this;
  std::vector<size_t> order = RowMajorOrder(dims.size());  // becomes that of the strides, fastest first
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  Tensor widened{{role, ElementType::kF32, dims, strides}};
  int64_t step = 1;
  for (const size_t i : order) {
    widened.strides[i] = step;
    step *= dims[i];
  }
  widened.stored = std::make_shared<const StoredHalves>(StoredHalves{*this, widened.strides});
  return widened;
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

std::vector<size_t> RowMajorOrder(size_t rank) {
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

Tensor ReadTensor(const Attributes& attributes, const std::string& role, Accepted accepted) {
  return {ReadArray(attributes, role, accepted)};
}

Tensor ReadOperand(const Attributes& attributes, const std::string& role) {
  return {ReadNestedArray(attributes, role, Accepted::kFloatsAndIntegers)};
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
