// hlo_dispatch.own.gathered_sums
//
//   dst[g, c] = sum over k of src[indices[g, k], c], or with 'mean' = 1 that divided by how many k there are
//
// Operands: indices (G, K), s32, which may be a part of its buffer, and src (S, C), f32, f64 or bf16. Results: dst of
// G * C elements in their order, of src's type, or of bf16 f32 ('dst_type'), and scratch. With 'wrap' indices below 0
// count from the end. One that is outside stands for the nearest row ('outside' = 0), zeros (1), or NaN (2). The order
// of additions, in f32 of bf16, depends on K alone.
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
#include "common/strided_array.h"
#include "sparse/arithmetic.h"
#include "sparse/gathered.h"

namespace hlo_dispatch::sparse {

namespace {

// Bytes, some ten microseconds, that are worth waking a thread for, and as how many a row counts besides its own.
constexpr double kMinPerThread = 1 << 18;
constexpr int64_t kBytesOfLookup = 64;
// Pieces of work for each thread, since the others come later than this one.
constexpr int64_t kShares = 4;
// Rows whose places are looked up at once.
constexpr int64_t kRowsAtOnce = 1 << 10;

const GatheredArithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kGatheredArithmetic, avx2::kGatheredArithmetic, avx512::kGatheredArithmetic);
}

int64_t Option(const Attributes& attributes, const std::string& name, int64_t most) {
  const int64_t value = attributes.Integer(name);
  if (value >= 0 && value <= most) return value;
  Invalid("attribute '" + name + "': expected 0 to " + std::to_string(most) + ", got " + std::to_string(value));
}

GatheredType TypeOf(ElementType source, ElementType destination) {
  if (source == ElementType::kF32 && destination == source) return kGatheredF32;
  if (source == ElementType::kF64 && destination == source) return kGatheredF64;
  if (source == ElementType::kBF16 && destination == source) return kGatheredBf16;
  if (source == ElementType::kBF16 && destination == ElementType::kF32) return kGatheredBf16ToF32;
  Unsupported("attribute 'type': expected f32, f64 or bf16, and dst_type to be the same, or f32 of bf16");
}

class GatheredSums final : public Routine {
 public:
  GatheredSums(const Provider&, const Attributes& attributes)
      : source_{"src", ElementTypeFromName(attributes.Text("type"), "type", Accepted::kNumbers),
                attributes.Integers("src_dims"), attributes.Integers("src_strides")},
        indices_{"indices", ElementType::kS32, attributes.Integers("indices_dims"),
                 attributes.Integers("indices_strides")},
        destination_{"dst", ElementTypeFromName(attributes.Text("dst_type"), "dst_type", Accepted::kNumbers),
                     attributes.Integers("dst_dims"), attributes.Integers("dst_strides")},
        arithmetic_(BestArithmetic()),
        sum_(arithmetic_.sum[TypeOf(source_.type, destination_.type)]),
        wraps_(Option(attributes, "wrap", 1) != 0),
        is_mean_(Option(attributes, "mean", 1) != 0),
        outside_(static_cast<Outside>(Option(attributes, "outside", 2))) {
    CheckMatrix(source_);
    CheckMatrix(indices_);
    if (!IsRowMajor(source_.dims, source_.strides)) Unsupported("src: expected row-major numbers");
    indices_.offset = attributes.Integer("indices_offset");
    indices_.elements = attributes.Integer("indices_elements");
    if (indices_.strides[0] < 1 || indices_.strides[1] < 1 || indices_.offset < 0 || indices_.elements < 1) {
      Invalid("indices: expected strides and elements, and an offset of at least 0");
    }
    Bytes(indices_.elements, ElementBytes(indices_.type), "indices");
    if (Extent(indices_.dims, indices_.strides, "indices") > indices_.elements - indices_.offset) {
      Invalid("indices: expected them within their buffer of " + std::to_string(indices_.elements) + " elements");
    }
    sums_ = indices_.dims[0], count_ = indices_.dims[1], width_ = source_.dims[1];
    if (destination_.dims.size() != destination_.strides.size()) Invalid("dst: expected a stride for each dimension");
    if (Elements(destination_.dims, "dst") != Product(sums_, width_, "dst")) {
      Invalid("dst: expected as many elements as there are sums, each with the columns of src");
    }
    Bytes(sums_ * width_, ElementBytes(destination_.type), "dst");
    if (!IsRowMajor(destination_.dims, destination_.strides)) Unsupported("dst: expected row-major sums");
    operands_ = {SpecOf(indices_), SpecOf(source_)};
    results_ = {SpecOf(destination_), PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("gathered_sums:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* indices = static_cast<const int32_t*>(indices_.Begin(const_cast<void*>(buffers.operands[0])));
    const double bytes = static_cast<double>(sums_) * static_cast<double>(count_) *
                         static_cast<double>(width_ * ElementBytes(source_.type) + kBytesOfLookup);
    const int64_t threads = parallel.ThreadsFor(bytes, kMinPerThread);
    const int64_t at_once = std::max<int64_t>(1, kRowsAtOnce / count_);
    parallel.For(sums_, CeilOfRatio(sums_, threads == 1 ? 1 : kShares * threads), [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += at_once) {
        Add(indices, buffers, first, std::min(end, first + at_once));
      }
    });
  }

 private:
  static void CheckMatrix(const StridedArray& array) {
    if (array.dims.size() != 2 || array.strides.size() != 2) {
      Invalid(array.role + ": expected two dimensions, and a stride for each");
    }
    for (const int64_t size : array.dims) {
      if (size < 1) Invalid(array.role + ": expected elements, got a dimension of " + std::to_string(size));
    }
    Bytes(Elements(array.dims, array.role), ElementBytes(array.type), array.role);
  }

  // The rows of one sum.
  struct Rows {
    int64_t first, count;
    bool is_nan;
  };

  // The sums [begin, end).
  void Add(const int32_t* indices, const RoutineBuffers& buffers, int64_t begin, int64_t end) const {
    std::vector<const char*> rows;
    std::vector<Rows> of_sums;
    rows.reserve(static_cast<size_t>((end - begin) * count_));
    of_sums.reserve(static_cast<size_t>(end - begin));
    for (int64_t sum = begin; sum < end; ++sum) of_sums.push_back(Find(indices, sum, buffers.operands[1], rows));
    const double factor = is_mean_ ? 1 / static_cast<double>(count_) : 1;
    const auto known = static_cast<int64_t>(rows.size());
    const int64_t row_bytes = width_ * ElementBytes(destination_.type);
    for (int64_t sum = begin; sum < end; ++sum) {
      const Rows& found = of_sums[static_cast<size_t>(sum - begin)];
      char* to = static_cast<char*>(buffers.results[0]) + sum * row_bytes;
      // NaN times a factor is NaN.
      sum_({rows.data() + found.first, found.count, known - found.first, width_,
            found.is_nan ? std::numeric_limits<double>::quiet_NaN() : factor, to});
    }
  }

  // Appends where the rows of a sum begin.
  Rows Find(const int32_t* indices, int64_t sum, const void* source, std::vector<const char*>& rows) const {
    const int64_t size = source_.dims[0], row_bytes = width_ * ElementBytes(source_.type);
    Rows found{static_cast<int64_t>(rows.size()), 0, false};
    for (int64_t k = 0; k < count_; ++k) {
      int64_t index = indices[sum * indices_.strides[0] + k * indices_.strides[1]];
      if (wraps_ && index < 0) index += size;
      if (index < 0 || index >= size) {
        if (outside_ != Outside::kNearest) {
          found.is_nan = outside_ == Outside::kNan;
          continue;
        }
        index = index < 0 ? 0 : size - 1;
      }
      rows.push_back(static_cast<const char*>(source) + index * row_bytes);
    }
    found.count = static_cast<int64_t>(rows.size()) - found.first;
    return found;
  }

  StridedArray source_, indices_, destination_;
  const GatheredArithmetic& arithmetic_;
  void (*sum_)(const GatheredRows& gathered);
  bool wraps_, is_mean_;
  Outside outside_;
  int64_t sums_ = 0, count_ = 0, width_ = 0;
};

const Family<GatheredSums, kOwnEverywhere> family("gathered_sums");

}  // namespace

}  // namespace hlo_dispatch::sparse
