#include "channels/rows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/failure.h"
#include "common/processor.h"
#include "onednn/library.h"

namespace hlo_dispatch::channels {

Rows Rows::Of(const StridedArray& array) {
  if (array.type != ElementType::kF32 && array.type != ElementType::kBF16) {
    Unsupported(array.role + ": expected f32 or bf16");
  }
  if (array.dims.size() < 2) Unsupported(array.role + ": expected at least 2 dimensions");
  // Stride and size of what lies in space, which may do so in any order.
  std::vector<std::pair<int64_t, int64_t>> space;
  Rows rows{array.dims[0], 1, array.dims[1]};
  for (size_t i = 2; i < array.dims.size(); ++i) {
    rows.positions *= array.dims[i];
    if (array.dims[i] > 1) space.emplace_back(array.strides[i], array.dims[i]);
  }
  std::sort(space.begin(), space.end());
  int64_t expected = rows.channels;
  bool is_dense = rows.channels == 1 || array.strides[1] == 1;
  for (const auto& [stride, size] : space) {
    is_dense = is_dense && stride == expected;
    expected *= size;
  }
  if (rows.images > 1) is_dense = is_dense && array.strides[0] == expected;
  if (!is_dense) Unsupported(array.role + ": expected channels that vary fastest, then space, then images");
  return rows;
}

const Arithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

const Loops& LoopsFor(const Arithmetic& arithmetic, ElementType type) {
  return type == ElementType::kF32 ? arithmetic.f32 : arithmetic.bf16;
}

void CheckThreads() {
  if (onednn::Library::Get().tbb() != nullptr) return;
  Unsupported("this oneDNN computes on threads that are not oneTBB's, or none that loops of ours can run on");
}

}  // namespace hlo_dispatch::channels
