// hlo_dispatch.own.argmax
//
//   dst[row] = the first place of the largest number of src[row, ...], or of the first NaN where there is one
//
// or with the attribute extremum = minimum of the smallest. Operands: src (rows..., N), f32, f64, bf16 or s32,
// row-major; dimensions of one element may follow N. Results: dst (src's dimensions without N), s32 or s64, and
// scratch. A row is read once; few rows are divided among threads, and what each finds is compared in the order of
// places, so that equal numbers give the first of them.
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

// So many bytes, some fifteen microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 20;
// Pieces of work for each thread, since the others come later than this one.
constexpr int64_t kShares = 4;

const Arithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

Type TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return kF32;
    case ElementType::kF64:
      return kF64;
    case ElementType::kBF16:
      return kBF16;
    case ElementType::kS32:
      return kS32;
    default:
      Unsupported("src: expected f32, f64, bf16 or s32");
  }
}

// Programs that were saved before there was a choice have neither attribute.
bool IsOfSmallest(const Attributes& attributes) {
  if (!attributes.Has("extremum")) return false;
  const std::string extremum = attributes.Text("extremum");
  if (extremum == "minimum") return true;
  if (extremum == "maximum") return false;
  Invalid("attribute 'extremum': expected maximum or minimum, got '" + extremum + "'");
}

bool HasWidePlaces(const Attributes& attributes) {
  if (!attributes.Has("dst_type")) return false;
  const std::string type = attributes.Text("dst_type");
  if (type == "s64") return true;
  if (type == "s32") return false;
  Unsupported("attribute 'dst_type': expected s32 or s64, got '" + type + "'");
}

class ArgMax final : public Routine {
 public:
  ArgMax(const Provider&, const Attributes& attributes)
      : source_(ReadArray(attributes, "src", Accepted::kNumbers)),
        arithmetic_(BestArithmetic()),
        is_of_smallest_(IsOfSmallest(attributes)),
        has_wide_places_(HasWidePlaces(attributes)),
        find_(arithmetic_.find[TypeOf(source_.type)][is_of_smallest_]) {
    if (source_.dims.empty()) Invalid("src: expected at least one dimension");
    if (!IsRowMajor(source_.dims, source_.strides)) Unsupported("src: expected rows behind one another");
    if (source_.BufferBytes() != source_.Bytes()) Unsupported("src: expected the whole of its buffer");
    const std::vector<int64_t> rows = attributes.Integers("dst_dims");
    auto reduced = source_.dims.end() - 1;
    // Where as many remain of either, it is the last dimension that is reduced.
    while (*reduced == 1 && reduced != source_.dims.begin() && rows != Without(reduced)) --reduced;
    if (rows != Without(reduced)) Invalid("attribute 'dst_dims': expected those of src but the last");
    columns_ = *reduced;
    if (!has_wide_places_ && columns_ > std::numeric_limits<int32_t>::max())
      Unsupported("src: expected places that s32 can hold");
    if (!IsRowMajor(rows, attributes.Integers("dst_strides"))) Unsupported("dst: expected places side by side");
    rows_ = source_.Bytes() / ElementBytes(source_.type) / columns_;
    operands_ = {SpecOf(source_)};
    results_ = {BufferSpec{"dst", has_wide_places_ ? xla::ffi::S64 : xla::ffi::S32, rows_ * (has_wide_places_ ? 8 : 4)},
                PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("argmax:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const char*>(buffers.operands[0]);
    const int64_t bytes = ElementBytes(source_.type);
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(rows_ * columns_ * bytes), kMinPerThread);
    const int64_t pieces = threads == 1 ? 1 : std::min(columns_, CeilOfRatio(kShares * threads, rows_));
    const int64_t size = CeilOfRatio(columns_, pieces);
    std::vector<Peak> peaks(static_cast<size_t>(rows_ * pieces));
    const int64_t shares = threads == 1 ? 1 : kShares * threads;
    parallel.For(rows_ * pieces, CeilOfRatio(rows_ * pieces, shares), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = std::min(i % pieces * size, columns_ - 1), count = std::min(size, columns_ - first);
        Peak& peak = peaks[static_cast<size_t>(i)];
        peak = find_(from + (i / pieces * columns_ + first) * bytes, count);
        peak.place += first;
      }
    });
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t place = FirstOf(peaks.data() + row * pieces, pieces);
      if (has_wide_places_) {
        static_cast<int64_t*>(buffers.results[0])[row] = place;
      } else {
        static_cast<int32_t*>(buffers.results[0])[row] = static_cast<int32_t>(place);
      }
    }
  }

 private:
  // Where the best of what pieces of a row found is.
  int64_t FirstOf(const Peak* found, int64_t pieces) const {
    const double sign = is_of_smallest_ ? -1 : 1;
    Peak best = found[0];
    for (int64_t piece = 1; piece < pieces && best.value == best.value; ++piece) {
      if (!(sign * found[piece].value <= sign * best.value)) best = found[piece];
    }
    return best.place;
  }

  // The dimensions of src but one of them.
  std::vector<int64_t> Without(std::vector<int64_t>::const_iterator one) const {
    std::vector<int64_t> others(source_.dims.begin(), one);
    others.insert(others.end(), one + 1, source_.dims.end());
    return others;
  }

  StridedArray source_;
  const Arithmetic& arithmetic_;
  bool is_of_smallest_, has_wide_places_;
  Peak (*find_)(const void* from, int64_t count);
  int64_t rows_ = 0, columns_ = 0;
};

const Family<ArgMax, kOwnEverywhere> family("argmax");

}  // namespace

}  // namespace hlo_dispatch::reductions
