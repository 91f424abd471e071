// hlo_dispatch.own.channel_scaling
//
//   dst[n, c, x] = post_ops( src[n, c, x] )
//
// where each post-op multiplies with, adds or subtracts one number for each channel: the gate of squeeze-and-excite, or
// the normalization of an image, between calls of oneDNN's, whose binary operation is slow where an operand repeats.
// All post-ops are one factor and one summand. Operands, attributes and results are those of onednn.binary.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "channels/arithmetic.h"
#include "channels/rows.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/halves.h"
#include "common/rounding.h"
#include "common/routine.h"

namespace hlo_dispatch::channels {

namespace {

// Bytes that are worth handing to another thread: below, reading and writing them takes less than the two threads need
// to agree.
constexpr int64_t kMinPerThread = 1 << 16;
// Rows are taken several at a time until they are a whole number of the longest vectors.
constexpr int64_t kWholeVectors = 16;
constexpr int kMaxPostOps = 32;

enum class Kind { kMultiply, kAdd, kSubtract, kLine };

struct Step {
  Kind kind;
  StridedArray other;                        // what kLine has none of
  float slope = 1, shift = 0;                // what only kLine has
  int64_t image_step = 0, channel_step = 0;  // 0 where it repeats

  bool has_operand() const { return kind != Kind::kLine; }
};

Step ReadStep(const Attributes& attributes, const std::string& role, const StridedArray& source) {
  const std::unique_ptr<Attributes> post_op = attributes.Nested(role);
  const std::string algorithm = post_op->Text("algorithm");
  if (post_op->Text("kind") == "eltwise") {
    if (algorithm != "linear") Unsupported(role + ": expected a binary post-op, or eltwise linear");
    return {Kind::kLine, {}, post_op->Real("alpha"), post_op->Real("beta")};
  }
  if (algorithm != "mul" && algorithm != "add" && algorithm != "sub") {
    Unsupported(role + ": expected mul, add or sub, got " + algorithm);
  }
  Step step{algorithm == "mul"   ? Kind::kMultiply
            : algorithm == "add" ? Kind::kAdd
                                 : Kind::kSubtract,
            ReadNestedArray(*post_op, role)};
  const std::vector<int64_t>& dims = step.other.dims;
  CheckRepeats(step.other, source.dims);
  if (std::any_of(dims.begin() + 2, dims.end(), [](int64_t size) { return size != 1; })) {
    Unsupported(role + ": expected one number for each channel");
  }
  step.image_step = dims[0] == 1 ? 0 : step.other.strides[0];
  step.channel_step = dims[1] == 1 ? 0 : step.other.strides[1];
  return step;
}

class Scaling final : public Routine {
 public:
  Scaling(const Provider&, const Attributes& attributes)
      : source_(ReadArray(attributes, "src")),
        destination_(ReadArray(attributes, "dst")),
        rows_(Rows::Of(source_)),
        arithmetic_(BestArithmetic()) {
    CheckThreads();
    const bool alike = source_.type == destination_.type && source_.dims == destination_.dims;
    if (!alike || source_.strides != destination_.strides) Unsupported("dst: expected the type and layout of src");
    operands_ = {SpecOf(source_)};
    const int count = CountPostOps(attributes, kMaxPostOps, "own.channel_scaling");
    for (int i = 0; i < count; ++i) {
      steps_.push_back(ReadStep(attributes, "post_op_" + std::to_string(i), source_));
      const Step& step = steps_.back();
      if (step.has_operand()) operands_.push_back(SpecOf(step.other));
      is_shifted_ = is_shifted_ || (step.kind == Kind::kLine ? step.shift != 0 : step.kind != Kind::kMultiply);
    }
    results_ = {SpecOf(destination_), PlannedScratch(attributes)};
    repeats_ = std::min(kWholeVectors / std::gcd(kWholeVectors, rows_.channels), rows_.positions);
  }

  std::string implementation() const override { return std::string("channels:") + arithmetic_.name; }
  bool may_write_over_source() const override { return true; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const char*>(source_.Begin(const_cast<void*>(buffers.operands[0])));
    auto* to = static_cast<char*>(destination_.Begin(buffers.results[0]));
    const auto numbers = static_cast<size_t>(rows_.images * repeats_ * rows_.channels);
    std::vector<float> factors(numbers, 1.0f), shifts(is_shifted_ ? numbers : 0);
    Combine(buffers, factors.data(), shifts.data());
    const int64_t row_bytes = rows_.channels * ElementBytes(source_.type), count = rows_.images * rows_.positions;
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(count * row_bytes), kMinPerThread);
    const Loops& loops = LoopsFor(arithmetic_, source_.type);
    parallel.For(count, CeilOfRatio(count, threads), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t image = begin / rows_.positions;
        const int64_t stop = std::min(end, (image + 1) * rows_.positions);
        const int64_t numbers_before = image * repeats_ * rows_.channels;
        const float* summands = is_shifted_ ? shifts.data() + numbers_before : nullptr;
        const auto scale = [&](int64_t first, int64_t rows, int64_t together) {
          loops.scale(from + first * row_bytes, factors.data() + numbers_before, summands, rows,
                      together * rows_.channels, to + first * row_bytes);
        };
        const int64_t whole = (stop - begin) / repeats_;
        scale(begin, whole, repeats_);
        scale(begin + whole * repeats_, stop - begin - whole * repeats_, 1);
        begin = stop;
      }
    });
  }

 private:
  // All steps as one factor and one summand for each image and channel, repeated for rows that are taken together.
  void Combine(const RoutineBuffers& buffers, float* factors, float* shifts) const {
    const int64_t channels = rows_.channels;
    std::vector<float> numbers(static_cast<size_t>(channels));
    size_t operand = 1;
    for (const Step& step : steps_) {
      std::optional<WidenedValues> values;
      if (step.has_operand()) values.emplace(step.other, buffers.operands[operand++]);
      for (int64_t image = 0; image < rows_.images; ++image) {
        const float* other = values.has_value() ? values->begin() + image * step.image_step : &step.slope;
        for (int64_t c = 0; c < channels; ++c) numbers[static_cast<size_t>(c)] = other[c * step.channel_step];
        float* factor = factors + image * repeats_ * channels;
        float* shift = shifts + (is_shifted_ ? image * repeats_ * channels : 0);
        if (step.kind == Kind::kAdd || step.kind == Kind::kSubtract) {
          const float sign = step.kind == Kind::kAdd ? 1.0f : -1.0f;
          for (int64_t c = 0; c < channels; ++c) shift[c] += sign * numbers[static_cast<size_t>(c)];
          continue;
        }
        for (int64_t c = 0; c < channels; ++c) factor[c] *= numbers[static_cast<size_t>(c)];
        if (!is_shifted_) continue;
        for (int64_t c = 0; c < channels; ++c) shift[c] = shift[c] * numbers[static_cast<size_t>(c)] + step.shift;
      }
    }
    for (int64_t image = 0; image < rows_.images; ++image) {
      for (float* given : {factors, shifts}) {
        if (given == shifts && !is_shifted_) continue;
        float* first = given + image * repeats_ * channels;
        for (int64_t i = 1; i < repeats_; ++i) std::copy_n(first, channels, first + i * channels);
      }
    }
  }

  StridedArray source_, destination_;
  Rows rows_;
  std::vector<Step> steps_;
  bool is_shifted_ = false;
  int64_t repeats_ = 1;  // rows that are taken together
  const Arithmetic& arithmetic_;
};

const Family<Scaling, kOwnEverywhere> family("channel_scaling",
                                             {{}, "", kOneDnnCallGroup, /*may_write_over_source=*/true});

}  // namespace

}  // namespace hlo_dispatch::channels
