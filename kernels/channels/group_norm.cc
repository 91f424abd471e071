// hlo_dispatch.own.group_norm
//
//   dst[n, x, c] = f( (src[n, x, c] - m) / sqrt(v + epsilon) * scale[c] + shift[c] )
//
// where m and v are the mean and the variance of image n's channels of the group of c, over all x; channels side by
// side are a group, 'groups' says how many there are, and f is swish where 'swish' is 1. Operands: src (images,
// positions, channels), row-major, of f32 or bf16; scale and shift (channels), of the types that scale_type and
// shift_type say. Results: dst, as src, and scratch. One pass sums up in f64, so that the difference of two means is as
// exact as the mean of squared differences; another one writes.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "channels/arithmetic.h"
#include "channels/rows.h"
#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/halves.h"
#include "common/rounding.h"
#include "common/routine.h"

namespace hlo_dispatch::channels {

namespace {

// Bytes that are worth handing to another thread.
constexpr double kMinPerThread = 1 << 16;
// Bytes that are summed up together: few enough for the first caches.
constexpr int64_t kPieceBytes = 1 << 14;
constexpr size_t kDimensions = 3;

class GroupNorm final : public Routine {
 public:
  GroupNorm(const Provider&, const Attributes& attributes)
      : source_(ReadArray(attributes, "src")), arithmetic_(BestArithmetic()) {
    if (source_.type == ElementType::kF16) Unsupported("src: expected f32 or bf16");
    const std::vector<int64_t>& dims = source_.dims;
    if (dims.size() != kDimensions) Invalid("src: expected images, positions and channels");
    for (const int64_t size : dims) {
      if (size < 1) Unsupported("src: expected elements");
    }
    const StridedArray destination = ReadArray(attributes, "dst");
    if (destination.dims != dims || destination.type != source_.type)
      Invalid("dst: expected src's dimensions and type");
    for (const StridedArray& array : {source_, destination}) {
      if (array.BufferBytes() != array.Bytes()) Unsupported(array.role + ": expected the whole of its buffer");
      if (!IsRowMajor(dims, array.strides))
        Unsupported(array.role + ": expected channels side by side, then positions");
    }
    images_ = dims[0], positions_ = dims[1], channels_ = dims[2];
    groups_ = attributes.Integer("groups");
    if (groups_ < 1 || channels_ % groups_ != 0) Invalid("attribute 'groups': expected a divisor of the channels");
    epsilon_ = attributes.Real("epsilon");
    if (!std::isfinite(epsilon_) || epsilon_ < 0) {
      Invalid("attribute 'epsilon': expected a number that is not negative, got " + std::to_string(epsilon_));
    }
    const int64_t swish = attributes.Integer("swish");
    if (swish != 0 && swish != 1) Invalid("attribute 'swish': expected 0 or 1, got " + std::to_string(swish));
    has_swish_ = swish == 1;
    for (StridedArray* vector : {&scale_, &shift_}) {
      const std::string role = vector == &scale_ ? "scale" : "shift", type = role + "_type";
      *vector = {role, ElementTypeFromName(attributes.Text(type), type), {channels_}, {1}};
    }
    operands_ = {SpecOf(source_), SpecOf(scale_), SpecOf(shift_)};
    results_ = {SpecOf(destination), PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("group_norm:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const char*>(buffers.operands[0]);
    auto* to = static_cast<char*>(buffers.results[0]);
    const Loops& loops = LoopsFor(arithmetic_, source_.type);
    const int64_t row_bytes = channels_ * ElementBytes(source_.type);
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(source_.Bytes()), kMinPerThread);
    const std::vector<double> sums = Sums(from, loops, row_bytes, threads, parallel);
    const auto numbers = static_cast<size_t>(images_ * channels_);
    std::vector<float> means(numbers), factors(numbers), shifts(numbers);
    Describe(buffers, sums, means.data(), factors.data(), shifts.data());
    const int64_t rows = images_ * positions_;
    parallel.For(rows, CeilOfRatio(rows, threads), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t image = begin / positions_, stop = std::min(end, (image + 1) * positions_);
        const int64_t first = image * channels_;
        loops.normalize(from + begin * row_bytes, means.data() + first, factors.data() + first, shifts.data() + first,
                        has_swish_, stop - begin, channels_, to + begin * row_bytes);
        begin = stop;
      }
    });
  }

 private:
  // For each image the sums of its channels, then those of their squares.
  std::vector<double> Sums(const char* from, const Loops& loops, int64_t row_bytes, int64_t threads,
                           const Parallel& parallel) const {
    // As many parts of each image as give every thread one, each summed up by itself.
    const int64_t parts = std::min(positions_, CeilOfRatio(threads, images_)), size = CeilOfRatio(positions_, parts);
    const int64_t rows = std::max<int64_t>(1, kPieceBytes / row_bytes), numbers = 2 * channels_;
    std::vector<double> sums(static_cast<size_t>(images_ * parts * numbers));
    parallel.For(images_ * parts, CeilOfRatio(images_ * parts, threads), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % parts * size, last = std::min(first + size, positions_);
        double* total = sums.data() + i * numbers;
        for (int64_t row = first; row < last; row += rows) {
          loops.add_squares(from + (i / parts * positions_ + row) * row_bytes, std::min(rows, last - row), channels_,
                            total, total + channels_);
        }
      }
    });
    for (int64_t image = 0; image < images_; ++image) {
      double* total = sums.data() + image * numbers;
      const double* first = sums.data() + image * parts * numbers;
      for (int64_t i = 0; i < numbers; ++i) {
        double sum = 0;
        for (int64_t part = 0; part < parts; ++part) sum += first[part * numbers + i];
        total[i] = sum;
      }
    }
    return sums;
  }

  // What each channel of each image is normalized by.
  void Describe(const RoutineBuffers& buffers, const std::vector<double>& sums, float* means, float* factors,
                float* shifts) const {
    const WidenedValues scale(scale_, buffers.operands[1]), shift(shift_, buffers.operands[2]);
    const int64_t members = channels_ / groups_;
    const auto count = static_cast<double>(members * positions_);
    for (int64_t image = 0; image < images_; ++image) {
      const double* total = sums.data() + image * 2 * channels_;
      for (int64_t group = 0; group < groups_; ++group) {
        double sum = 0, squares = 0;
        for (int64_t c = group * members; c < (group + 1) * members; ++c) {
          sum += total[c];
          squares += total[channels_ + c];
        }
        const double mean = sum / count, difference = squares / count - mean * mean;
        const double variance = difference < 0 ? 0 : difference;  // NaN stays one
        const double factor = 1 / std::sqrt(variance + static_cast<double>(epsilon_));
        for (int64_t c = group * members; c < (group + 1) * members; ++c) {
          means[image * channels_ + c] = static_cast<float>(mean);
          factors[image * channels_ + c] = static_cast<float>(factor * static_cast<double>(scale.begin()[c]));
          shifts[image * channels_ + c] = shift.begin()[c];
        }
      }
    }
  }

  StridedArray source_, scale_{}, shift_{};
  const Arithmetic& arithmetic_;
  int64_t images_ = 0, positions_ = 0, channels_ = 0, groups_ = 0;
  float epsilon_ = 0;
  bool has_swish_ = false;
};

const Family<GroupNorm, kOwnEverywhere> family("group_norm");

}  // namespace

}  // namespace hlo_dispatch::channels
