#include "common/strided_array.h"

#include <limits>

#include "common/checked.h"
#include "common/failure.h"

namespace hlo_dispatch {

namespace {

constexpr size_t kMaxDimensions = 12;

// What the libraries' kernels count with.
constexpr int64_t kMaxPerDimension = std::numeric_limits<int>::max();

// Throws unless there may be such an array in a buffer.
void CheckShape(const StridedArray& array, Places places) {
  if (array.dims.empty() || array.dims.size() > kMaxDimensions) {
    Invalid(array.role + ": expected 1 to 12 dimensions, got " + std::to_string(array.dims.size()));
  }
  if (array.strides.size() != array.dims.size()) {
    Invalid(array.role + ": expected as many strides as dimensions (" + std::to_string(array.dims.size()) + "), got " +
            std::to_string(array.strides.size()));
  }
  const int64_t min_stride = places == Places::kApart ? 1 : 0;
  for (size_t i = 0; i < array.dims.size(); ++i) {
    if (array.dims[i] < 1) Invalid(array.role + ": expected dimensions >= 1, got " + std::to_string(array.dims[i]));
    if (array.strides[i] < min_stride) {
      Invalid(array.role + ": expected strides >= " + std::to_string(min_stride) + ", got " +
              std::to_string(array.strides[i]));
    }
    if (array.dims[i] > kMaxPerDimension) {
      Unsupported(array.role + ": expected dimensions of at most " + std::to_string(kMaxPerDimension) + ", got " +
                  std::to_string(array.dims[i]));
    }
  }
  Bytes(Extent(array.dims, array.strides, array.role), ElementBytes(array.type), array.role);
}

// Throws unless its elements have places of their own, in a buffer of so many elements, or without one the whole of the
// buffer. A stride along one element means nothing, but a library may compute with it.
void CheckPlaces(const StridedArray& array) {
  CheckApart(array.dims, array.strides, array.role);
  if (array.elements == 0) CheckDense(array.dims, array.strides, array.role);
  const int64_t most = array.elements > 0 ? array.elements : Elements(array.dims, array.role);
  for (int64_t stride : array.strides) {
    if (stride > most) {
      Invalid(array.role + ": expected strides within its buffer of " + std::to_string(most) + " elements, got " +
              std::to_string(stride));
    }
  }
}

// `prefix` is in front of the attributes' names.
StridedArray Read(const Attributes& attributes, const std::string& role, const std::string& prefix, Accepted accepted,
                  Places places) {
  const std::string type = prefix + "type", elements = prefix + "elements", offset = prefix + "offset";
  StridedArray array{role,
                     ElementTypeFromName(attributes.Text(type), prefix.empty() ? role + "." + type : type, accepted),
                     attributes.Integers(prefix + "dims"), attributes.Integers(prefix + "strides")};
  CheckShape(array, places);
  if (attributes.Has(elements) || attributes.Has(offset)) {
    array.offset = attributes.Integer(offset);
    array.elements = attributes.Integer(elements);
    const int64_t whole = array.Bytes() / ElementBytes(array.type);
    if (array.offset < 0 || array.elements < 1 || whole > array.elements - array.offset) {
      Invalid(role + ": expected " + std::to_string(whole) + " elements behind offset " + std::to_string(array.offset) +
              ", got a buffer of " + std::to_string(array.elements));
    }
    Bytes(array.elements, ElementBytes(array.type), "attribute '" + elements + "'");
  }
  if (places == Places::kApart) CheckPlaces(array);
  return array;
}

}  // namespace

int64_t StridedArray::Bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return (last + 1) * ElementBytes(type);
}

int64_t StridedArray::BufferBytes() const { return elements > 0 ? elements * ElementBytes(type) : Bytes(); }

void* StridedArray::Begin(void* buffer) const { return static_cast<char*>(buffer) + offset * ElementBytes(type); }

StridedArray ReadArray(const Attributes& attributes, const std::string& role, Accepted accepted, Places places) {
  return Read(attributes, role, role + "_", accepted, places);
}

StridedArray ReadNestedArray(const Attributes& attributes, const std::string& role, Accepted accepted, Places places) {
  return Read(attributes, role, "", accepted, places);
}

void CheckRepeats(const StridedArray& operand, const std::vector<int64_t>& dims) {
  const std::string attribute = operand.role + ".dims";
  if (operand.dims.size() != dims.size()) {
    Invalid(attribute + ": expected the result's " + std::to_string(dims.size()) + " dimensions, got " +
            std::to_string(operand.dims.size()));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (operand.dims[i] == dims[i] || operand.dims[i] == 1) continue;
    Invalid(attribute + ": expected the result's " + std::to_string(dims[i]) + " elements or 1 in dimension " +
            std::to_string(i) + ", got " + std::to_string(operand.dims[i]));
  }
}

int CountPostOps(const Attributes& attributes, int most, const std::string& whose) {
  const auto name = [](int i) { return "post_op_" + std::to_string(i); };
  int length = 0;
  while (attributes.Has(name(length))) {
    if (length == most) Unsupported(name(length) + ": " + whose + " takes at most " + std::to_string(most));
    ++length;
  }
  for (int i = length + 1; i < most; ++i) {
    if (attributes.Has(name(i))) Invalid("attribute '" + name(length) + "' is missing, but there is " + name(i));
  }
  return length;
}

}  // namespace hlo_dispatch
