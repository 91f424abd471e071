// Small-batch matmul as a call's attributes describe it.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_PROBLEM_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/attributes.h"
#include "common/epilogue.h"
#include "common/provider.h"
#include "common/routine.h"
#include "common/rows_and_columns.h"
#include "common/strided_array.h"

namespace hlo_dispatch::quantized_matmul {

// With more rows than this f32 and bf16 are refused: arithmetic takes longer than the weights do then, and other
// products are better at that.
inline constexpr int64_t kMaxRows = 32;

enum class WeightsType { kS4, kS8, kBF16, kF32 };

// A matrix, (depth, columns).
struct Weights {
  WeightsType type;
  int64_t depth;
  int64_t columns;
  bool has_contiguous_columns;  // row-major; else column-major
  int64_t distance;             // between rows, or between columns
  int64_t offset;               // of the first one in its buffer
  int64_t elements;             // of the whole buffer
  // Of unsigned numbers of four bits in bytes (u8), a block of so many has its first half in the lower bits of as many
  // bytes, and its second half in the upper bits. 0: they are none.
  int64_t block;

  // Bits to flip: of unsigned numbers the signs, so that 0 to 15 are -8 to 7.
  uint8_t flip() const { return block > 0 ? 0x88 : 0; }
};

// Of so many weights; those of four bits share a byte, and there is an even number of them.
int64_t WeightBytes(WeightsType type, int64_t count);

// What weights are multiplied with, (groups, columns): each row is for as many rows of weights as lie behind one
// another.
struct Scales {
  StridedArray array;
  RowsAndColumns matrix;
  int64_t group;  // rows of weights in each
};

// What is subtracted from integer weights before they are scaled.
struct Zeros {
  float constant;                     // from all of them
  std::optional<StridedArray> array;  // (groups, columns), or 1 where one number is for all
  RowsAndColumns matrix;              // of the array
  int64_t groups;                     // of rows of weights
};

struct Problem {
  // Throws Failure(kUnsupported) for what this kernel has nothing for.
  Problem(const Provider& provider, const Attributes& attributes);

  StridedArray source_array, destination_array;
  RowsAndColumns source, destination;
  Weights weights;
  std::optional<Scales> scales;
  std::optional<Zeros> zeros;
  // Numbers of a row of the source that are rounded to eight bits with one scale, and multiplied as integers. 0: the
  // source is multiplied as it is.
  int64_t source_group;
  Epilogue epilogue;
  bool may_be_prepacked;  // the weights, where the kernel has a layout for that

  // With prepacked weights of so many bytes; 0: they are not.
  std::vector<BufferSpec> operands(int64_t packed_bytes) const;
  BufferSpec result() const;
  bool has_integer_weights() const { return weights.type == WeightsType::kS4 || weights.type == WeightsType::kS8; }
  // Whether sums can be accumulated in the result's buffer.
  bool sums_in_place() const;
};

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_PROBLEM_H_
