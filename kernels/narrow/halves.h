// Matrices in f32, whatever they are in memory, and results in what they are to be in memory.
#ifndef HLO_DISPATCH_NARROW_HALVES_H_
#define HLO_DISPATCH_NARROW_HALVES_H_

#include <cstdint>
#include <vector>

#include "common/strided_array.h"
#include "onemkl/epilogue.h"
#include "onemkl/rows_and_columns.h"

namespace hlo_dispatch::narrow {

// A matrix, row by row, the elements of each side by side.
class Widened {
 public:
  Widened(const StridedArray& array, const onemkl::RowsAndColumns& matrix, const void* buffer);
  const float* begin() const { return begin_; }
  int64_t distance() const { return distance_; }  // from row to row

 private:
  std::vector<float> copy_;
  const float* begin_;
  int64_t distance_;
};

// Writes a part of a result of which there are all values, row by row.
void Narrow(const float* values, const onemkl::Part& part, const StridedArray& array,
            const onemkl::RowsAndColumns& matrix, void* buffer);

}  // namespace hlo_dispatch::narrow

#endif  // HLO_DISPATCH_NARROW_HALVES_H_
