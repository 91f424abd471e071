// hlo_dispatch.own.narrow_product
//
//   dst[m, n] = post_ops( bias[n] + sum over k of src[m, k] * weights[k, n] )
//
// of few rows: the product takes as long as its weights take to come from memory, so they are read once, as they lie.
// Narrow ones, of eight bits, stay so until they are in registers. Operands, attributes and results are those of
// onednn.matmul but for that type. Sums are in f32 and in an order that does not depend on how many threads there are.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/failure.h"
#include "common/halves.h"
#include "common/processor.h"
#include "lapack/family.h"
#include "narrow/arithmetic.h"
#include "narrow/halves.h"
#include "narrow/problem.h"

namespace hlo_dispatch::narrow {

namespace {

// So many bytes of weights, some ten microseconds, are worth waking a thread for.
constexpr double kLeastPerThread = 1 << 18;
// How many pieces there are for each thread.
constexpr int64_t kPiecesPerThread = 1;
// Columns of a piece: a whole number of the cache's lines, and enough of them to be fetched ahead.
constexpr int64_t kColumnGrain = 64, kFewestColumns = 256;

const Arithmetic& BestArithmetic() { return ForThisProcessor(kPlainArithmetic, kAvx2Arithmetic, kAvx512Arithmetic); }

int64_t RoundedUp(int64_t count, int64_t grain) { return (count + grain - 1) / grain * grain; }

class NarrowProduct final : public Routine {
 public:
  NarrowProduct(const lapack::Provider& provider, const Attributes& attributes)
      : problem_(provider, attributes), arithmetic_(BestArithmetic()), operands_(problem_.operands()) {
    results_ = {problem_.result(), PlannedScratch(attributes)};
  }

  std::string implementation() const override {
    const char* const type = ByType("s8", "bf16", "f32");
    return std::string("narrow:") + arithmetic_.name + ":" + type +
           (problem_.weights.has_columns_together ? "" : ":rows");
  }
  const std::vector<BufferSpec>& operands() const override { return operands_; }
  const std::vector<BufferSpec>& results() const override { return results_; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const Widened source(problem_.source_array, problem_.source, buffers.operands[0]);
    std::vector<WidenedValues> others;
    std::vector<const float*> given;
    for (size_t i = 0; i < problem_.epilogue.operands().size(); ++i) {
      others.emplace_back(problem_.epilogue.operands()[i], buffers.operands[i + 2]);
      given.push_back(others.back().begin());
    }
    const int64_t columns = problem_.weights.columns;
    // Where the sums are; apart from the result if that is no matrix of f32 by row.
    onemkl::RowsAndColumns sums = problem_.destination;
    auto* values = static_cast<float*>(buffers.results[0]);
    std::unique_ptr<float[]> apart;
    if (!problem_.sums_in_place()) {
      sums.row_stride = columns;
      sums.column_stride = 1;
      apart.reset(new float[static_cast<size_t>(sums.rows * columns)]);
      values = apart.get();
    }
    const double work = static_cast<double>(columns) * static_cast<double>(problem_.weights.depth * weight_bytes_);
    const auto threads =
        static_cast<int64_t>(std::clamp(work / kLeastPerThread, 1.0, static_cast<double>(parallel.threads())));
    const int64_t width = Width(threads);
    const int64_t pieces = (columns + width - 1) / width;
    parallel.For(pieces, threads == 1 ? pieces : 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const onemkl::Part part{0, sums.rows, i * width, std::min(columns, (i + 1) * width)};
        Multiply(source, static_cast<const char*>(buffers.operands[1]), values, sums.row_stride, part);
        if (!problem_.epilogue.is_empty()) problem_.epilogue.Apply(values, sums, part, given);
        if (apart != nullptr) {
          Narrow(values, part, problem_.destination_array, problem_.destination, buffers.results[0]);
        }
      }
    });
  }

 private:
  template <typename T>
  T ByType(T s8, T bf16, T f32) const {
    const WeightsType type = problem_.weights.type;
    return type == WeightsType::kS8 ? s8 : type == WeightsType::kBF16 ? bf16 : f32;
  }

  // Of a piece, in columns.
  int64_t Width(int64_t threads) const {
    const int64_t pieces = threads == 1 ? 1 : threads * kPiecesPerThread;
    const int64_t shared = std::max(kFewestColumns, (problem_.weights.columns + pieces - 1) / pieces);
    return RoundedUp(shared, kColumnGrain);
  }

  void Multiply(const Widened& source, const char* buffer, float* values, int64_t distance,
                const onemkl::Part& part) const {
    const Weights& weights = problem_.weights;
    const int64_t step = weights.has_columns_together ? 1 : weights.distance;
    const int64_t columns = part.column_end - part.column_begin;
    const std::unique_ptr<float[]> room(new float[static_cast<size_t>(part.row_end * columns)]);
    const Piece piece{source.begin(),
                      source.distance(),
                      part.row_end,
                      weights.depth,
                      buffer + (weights.offset + part.column_begin * step) * weight_bytes_,
                      weights.distance,
                      buffer + weights.elements * weight_bytes_,
                      columns,
                      values + part.column_begin,
                      distance,
                      room.get()};
    const Loops& loops = ByType<const Loops&>(arithmetic_.s8, arithmetic_.bf16, arithmetic_.f32);
    (weights.has_columns_together ? loops.columns_together : loops.rows_together)(piece);
  }

  Problem problem_;
  int64_t weight_bytes_ = WeightBytes(problem_.weights.type);
  const Arithmetic& arithmetic_;
  std::vector<BufferSpec> operands_;
  std::vector<BufferSpec> results_;
};

const lapack::Family<NarrowProduct, lapack::kOwnEverywhere> family("narrow_product", {}, "", "onednn.sequence");

}  // namespace

}  // namespace hlo_dispatch::narrow
