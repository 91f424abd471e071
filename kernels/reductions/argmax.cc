// hlo_dispatch.own.argmax
//
//   dst[row] = the first place of the largest number of src[row, ...], or of the first NaN where there is one
//
// Operands: src (rows..., N), f32 or bf16, row-major; dimensions of one element may follow N. Results: dst (src's
// dimensions without N), s32, and scratch. A row is read once; few rows are divided among threads, and what each finds
// is compared in the order of places, so that equal numbers give the first of them.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "reductions/arithmetic.h"

namespace hlo_dispatch::reductions {

namespace {

// So many bytes, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 17;

const Arithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

class ArgMax final : public Routine {
 public:
  ArgMax(const Provider&, const Attributes& attributes)
      : source_(ReadArray(attributes, "src")), arithmetic_(BestArithmetic()) {
    if (source_.type == ElementType::kF16) Unsupported("src: expected f32 or bf16");
    if (source_.dims.empty()) Invalid("src: expected at least one dimension");
    if (!IsRowMajor(source_.dims, source_.strides)) Unsupported("src: expected rows behind one another");
    if (source_.BufferBytes() != source_.Bytes()) Unsupported("src: expected the whole of its buffer");
    const std::vector<int64_t> rows = attributes.Integers("dst_dims");
    auto reduced = source_.dims.end() - 1;
    // Where as many remain of either, it is the last dimension that is reduced.
    while (*reduced == 1 && reduced != source_.dims.begin() && rows != Without(reduced)) --reduced;
    if (rows != Without(reduced)) Invalid("attribute 'dst_dims': expected those of src but the last");
    columns_ = *reduced;
    if (columns_ > std::numeric_limits<int32_t>::max()) Unsupported("src: expected places that s32 can hold");
    if (!IsRowMajor(rows, attributes.Integers("dst_strides"))) Unsupported("dst: expected places side by side");
    rows_ = source_.Bytes() / ElementBytes(source_.type) / columns_;
    operands_ = {SpecOf(source_)};
    results_ = {BufferSpec{"dst", xla::ffi::S32, rows_ * static_cast<int64_t>(sizeof(int32_t))},
                PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("argmax:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const char*>(buffers.operands[0]);
    auto* to = static_cast<int32_t*>(buffers.results[0]);
    const int64_t bytes = ElementBytes(source_.type);
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(rows_ * columns_ * bytes), kMinPerThread);
    const auto find = source_.type == ElementType::kF32 ? arithmetic_.f32 : arithmetic_.bf16;
    const int64_t pieces = std::min(columns_, CeilOfRatio(threads, rows_)), size = CeilOfRatio(columns_, pieces);
    std::vector<Peak> peaks(static_cast<size_t>(rows_ * pieces));
    parallel.For(rows_ * pieces, CeilOfRatio(rows_ * pieces, threads), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = std::min(i % pieces * size, columns_ - 1), count = std::min(size, columns_ - first);
        Peak& peak = peaks[static_cast<size_t>(i)];
        peak = find(from + (i / pieces * columns_ + first) * bytes, count);
        peak.place += first;
      }
    });
    for (int64_t row = 0; row < rows_; ++row) {
      const Peak* found = peaks.data() + row * pieces;
      Peak best = found[0];
      for (int64_t piece = 1; piece < pieces && best.value == best.value; ++piece) {
        if (!(found[piece].value <= best.value)) best = found[piece];
      }
      to[row] = static_cast<int32_t>(best.place);
    }
  }

 private:
  // The dimensions of src but one of them.
  std::vector<int64_t> Without(std::vector<int64_t>::const_iterator one) const {
    std::vector<int64_t> others(source_.dims.begin(), one);
    others.insert(others.end(), one + 1, source_.dims.end());
    return others;
  }

  StridedArray source_;
  const Arithmetic& arithmetic_;
  int64_t rows_ = 0, columns_ = 0;
};

const Family<ArgMax, kOwnEverywhere> family("argmax");

}  // namespace

}  // namespace hlo_dispatch::reductions
