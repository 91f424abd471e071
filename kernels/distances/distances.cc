// hlo_dispatch.own.squared_distances
//
//   dst[i, j] = the sum of (src[i, k] - other[j, k])² over k
//
// Operands: src (M, K) and other (N, K), row-major, f32 or f64. Results: dst (M, N), likewise, and scratch. Differences
// are squared as they are written: a product of the points, which cancels where they are near, is not computed. Each
// tile of results stays in registers while coordinates are added, 64 at once.
#include <algorithm>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "distances/arithmetic.h"

namespace hlo_dispatch::distances {

namespace {

// Squared differences that are worth waking a thread for.
constexpr double kMinPerThread = 1 << 18;
// Points of a block, whose coordinates stay in the first caches while panels go by.
constexpr int64_t kBlock = 64;

class SquaredDistances final : public Routine {
 public:
  SquaredDistances(const Provider&, const Attributes& attributes)
      : source_(Read(attributes, "src")),
        other_(Read(attributes, "other")),
        arithmetic_(ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic)) {
    const StridedArray destination = Read(attributes, "dst");
    rows_ = source_.dims[0], columns_ = other_.dims[0], depth_ = source_.dims[1];
    if (other_.dims[1] != depth_) Invalid("other: expected as many coordinates as src has");
    if (destination.dims != std::vector<int64_t>{rows_, columns_})
      Invalid("dst: expected a number for each two points");
    if (other_.type != source_.type || destination.type != source_.type) {
      Unsupported("src, other and dst: expected one element type");
    }
    const int64_t panels = CeilOfRatio(columns_, kPanel);
    Bytes(Product(panels * kPanel, depth_, "other_dims"), ElementBytes(source_.type), "other_dims");
    operands_ = {SpecOf(source_), SpecOf(other_)};
    results_ = {SpecOf(destination), PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("distances:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (source_.type == ElementType::kF32) {
      Compute<float>(buffers, arithmetic_.f32, parallel);
    } else {
      Compute<double>(buffers, arithmetic_.f64, parallel);
    }
  }

 private:
  static StridedArray Read(const Attributes& attributes, const std::string& role) {
    const StridedArray array = ReadArray(attributes, role, Accepted::kSinglesAndDoubles);
    if (array.dims.size() != 2) Invalid(role + ": expected 2 dimensions, got " + std::to_string(array.dims.size()));
    if (array.dims[0] < 1 || array.dims[1] < 1) Unsupported(role + ": expected elements");
    if (!IsRowMajor(array.dims, array.strides)) Unsupported(role + ": expected rows behind one another");
    if (array.BufferBytes() != array.Bytes()) Unsupported(role + ": expected the whole of its buffer");
    return array;
  }

  template <typename T, typename Loop>
  void Compute(const RoutineBuffers& buffers, Loop loop, const Parallel& parallel) const {
    const auto* from = static_cast<const T*>(buffers.operands[0]);
    const auto* other = static_cast<const T*>(buffers.operands[1]);
    auto* to = static_cast<T*>(buffers.results[0]);
    const int64_t panels = CeilOfRatio(columns_, kPanel), blocks = CeilOfRatio(rows_, kBlock);
    const double work = static_cast<double>(rows_) * static_cast<double>(columns_) * static_cast<double>(depth_);
    const int64_t threads = parallel.ThreadsFor(work, kMinPerThread);
    std::vector<T> packed(static_cast<size_t>(panels * kPanel * depth_));
    parallel.For(panels, CeilOfRatio(panels, threads), [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        T* const place = packed.data() + panel * kPanel * depth_;
        for (int64_t c = 0; c < std::min(kPanel, columns_ - panel * kPanel); ++c) {
          const T* const point = other + (panel * kPanel + c) * depth_;
          for (int64_t k = 0; k < depth_; ++k) place[k * kPanel + c] = point[k];
        }
      }
    });
    // Pieces of few panels where there are too few blocks of points.
    const int64_t across = std::min(panels, CeilOfRatio(4 * threads, blocks)), width = CeilOfRatio(panels, across);
    const int64_t pieces = CeilOfRatio(panels, width), items = blocks * pieces;
    parallel.For(items, threads == 1 ? items : 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / pieces * kBlock, count = std::min(kBlock, rows_ - row), first = i % pieces * width;
        for (int64_t k = 0; k < depth_; k += kDepth) {
          for (int64_t panel = first; panel < std::min(panels, first + width); ++panel) {
            loop(from + row * depth_ + k, depth_, count, packed.data() + (panel * depth_ + k) * kPanel,
                 std::min(kDepth, depth_ - k), std::min(kPanel, columns_ - panel * kPanel), k > 0,
                 to + row * columns_ + panel * kPanel, columns_);
          }
        }
      }
    });
  }

  StridedArray source_, other_;
  const Arithmetic& arithmetic_;
  int64_t rows_ = 0, columns_ = 0, depth_ = 0;
};

const Family<SquaredDistances, kOwnEverywhere> family("squared_distances");

}  // namespace

}  // namespace hlo_dispatch::distances
