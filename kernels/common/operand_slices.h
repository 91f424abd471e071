// Slices of stacked arrays: operands that a call reads where a larger array has them, at an index that is known when
// the call runs, as a loop over layers reads its weights. No copy is made of a slice.
#ifndef HLO_DISPATCH_COMMON_OPERAND_SLICES_H_
#define HLO_DISPATCH_COMMON_OPERAND_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/attributes.h"
#include "common/ffi.h"

namespace hlo_dispatch {

// Attribute `slices` of a call, a dictionary of arrays with a number for each sliced operand: which operand
// (`operands`) is the slice at which other operand (`indexes`, a scalar integer), how many slices there are (`counts`),
// how many bytes apart (`strides`), and how many elements each one has (`elements`). The indexes are behind all other
// operands.
class OperandSlices {
 public:
  struct Slice {
    size_t operand, index;
    int64_t count, stride, elements;
  };

  OperandSlices() = default;
  // Without the attribute there are none. Throws Failure(kInvalid) where the attribute is wrong.
  explicit OperandSlices(const Attributes& attributes);

  const std::vector<Slice>& all() const { return all_; }
  // How many operands of so many arguments are no indexes. Throws Failure(kInvalid) where arguments are missing.
  size_t operands(size_t arguments) const;

 private:
  std::vector<Slice> all_;
  size_t first_index_ = 0, end_ = 0;  // of the arguments that are indexes
};

// The operands of one execution, with slices in place of stacked arrays and without their indexes.
class OperandBuffers {
 public:
  // Throws Failure(kInvalid) where a slice is not within its array.
  OperandBuffers(const OperandSlices& slices, const xla::ffi::RemainingArgs& arguments);
  OperandBuffers(const OperandBuffers&) = delete;
  OperandBuffers& operator=(const OperandBuffers&) = delete;

  size_t size() const { return size_; }
  xla::ffi::AnyBuffer operator[](size_t number) const;

 private:
  struct Sliced {
    size_t operand;
    int64_t elements;
    XLA_FFI_Buffer buffer;
  };

  const xla::ffi::RemainingArgs& arguments_;
  size_t size_;
  std::vector<Sliced> sliced_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_OPERAND_SLICES_H_
