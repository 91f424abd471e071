// hlo_dispatch.own.channel_sums
//
//   dst[n, c] = post_ops( sum over x of src[n, c, x] )
//
// a mean over space, as a glue op between oneDNN's calls. Operands, attributes and results are those of onednn.pooling
// with one window over all of space and post-ops that are linear. Sums are in f32, and in an order that depends on the
// sizes alone: each thread has rows of its own, so that it reads what it wrote just before.
#include <algorithm>
#include <memory>
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

// Bytes that are summed up together: few enough for the first caches, and enough to be handed to another thread.
constexpr int64_t kPieceBytes = 1 << 15;
constexpr int kMaxPostOps = 32;

// y = slope * sum + shift.
struct Line {
  double slope = 1.0, shift = 0.0;
};

// The average that a pooling takes, and its post-ops.
Line ReadLine(const Attributes& attributes, int64_t positions) {
  const std::string algorithm = attributes.Text("algorithm");
  if (algorithm != "average") Invalid("attribute 'algorithm': expected average, got '" + algorithm + "'");
  Line line{1.0 / static_cast<double>(positions), 0.0};
  const int count = CountPostOps(attributes, kMaxPostOps, "own.channel_sums");
  for (int i = 0; i < count; ++i) {
    const std::string role = "post_op_" + std::to_string(i);
    const std::unique_ptr<Attributes> post_op = attributes.Nested(role);
    if (post_op->Text("kind") != "eltwise" || post_op->Text("algorithm") != "linear") {
      Unsupported(role + ": expected eltwise linear");
    }
    const double alpha = post_op->Real("alpha");
    line = {line.slope * alpha, line.shift * alpha + static_cast<double>(post_op->Real("beta"))};
  }
  return line;
}

class Sums final : public Routine {
 public:
  Sums(const Provider&, const Attributes& attributes)
      : source_(ReadArray(attributes, "src")),
        destination_(ReadArray(attributes, "dst")),
        rows_(Rows::Of(source_)),
        line_(ReadLine(attributes, rows_.positions)),
        arithmetic_(BestArithmetic()) {
    CheckThreads();
    const Rows sums = Rows::Of(destination_);
    if (sums.images != rows_.images || sums.channels != rows_.channels || sums.positions != 1) {
      Invalid("dst: expected one number for each image and channel of src");
    }
    const std::vector<int64_t> space(source_.dims.begin() + 2, source_.dims.end());
    if (attributes.Integers("window") != space) Invalid("attribute 'window': expected one over all of space");
    for (const char* edge : {"padding_low", "padding_high"}) {
      for (const int64_t padding : attributes.Integers(edge)) {
        if (padding != 0) Invalid(std::string("attribute '") + edge + "': expected no padding");
      }
    }
    operands_ = {SpecOf(source_)};
    results_ = {SpecOf(destination_), PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("channels:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const char*>(source_.Begin(const_cast<void*>(buffers.operands[0])));
    void* to = destination_.Begin(buffers.results[0]);
    const int64_t channels = rows_.channels, row_bytes = channels * ElementBytes(source_.type);
    const int64_t rows = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, rows_.positions);
    const int64_t pieces = CeilOfRatio(rows_.positions, rows), count = rows_.images * pieces;
    std::vector<float> sums(static_cast<size_t>(count * channels));
    const Loops& loops = LoopsFor(arithmetic_, source_.type);
    // Neighbours go to one thread.
    const int64_t grain = CeilOfRatio(count, parallel.threads());
    parallel.For(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / pieces, first = i % pieces * rows;
        loops.add(from + (image * rows_.positions + first) * row_bytes, std::min(rows, rows_.positions - first),
                  channels, sums.data() + i * channels);
      }
    });
    for (int64_t image = 0; image < rows_.images; ++image) {
      float* total = sums.data() + image * pieces * channels;
      for (int64_t piece = 1; piece < pieces; ++piece) {
        for (int64_t c = 0; c < channels; ++c) total[c] += total[piece * channels + c];
      }
      const auto slope = static_cast<float>(line_.slope), shift = static_cast<float>(line_.shift);
      for (int64_t c = 0; c < channels; ++c) {
        StoreNarrowed(slope * total[c] + shift, destination_.type, to, image * channels + c);
      }
    }
  }

 private:
  StridedArray source_, destination_;
  Rows rows_;
  Line line_;
  const Arithmetic& arithmetic_;
};

const Family<Sums, kOwnEverywhere> family("channel_sums", {{}, "", kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::channels
