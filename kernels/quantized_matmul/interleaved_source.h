// The source in the order in which packed weights are summed up: of each block of them the halves take turns, as
// the numbers of four bits do that share a byte.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_INTERLEAVED_SOURCE_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_INTERLEAVED_SOURCE_H_

#include <vector>

#include "common/rows_and_columns.h"
#include "common/strided_array.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

class InterleavedSource {
 public:
  InterleavedSource(const Problem& problem, const void* buffer);
  InterleavedSource(const InterleavedSource&) = delete;
  InterleavedSource& operator=(const InterleavedSource&) = delete;

  const StridedArray& array() const { return array_; }
  const RowsAndColumns& matrix() const { return matrix_; }
  const void* buffer() const { return buffer_; }

 private:
  StridedArray array_;
  RowsAndColumns matrix_;
  std::vector<char> copy_;  // empty where the order is the source's own
  const void* buffer_;
};

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_INTERLEAVED_SOURCE_H_
