// hlo_dispatch.own.cube
//
//   dst[i] = src[i] * src[i] * src[i]
//
// Operands: src. Results: dst, scratch. Both arrays lie alike and without gaps.
#include <string>

#include "common/failure.h"
#include "common/family.h"
#include "common/routine.h"

namespace hlo_dispatch::elementwise {

namespace {

constexpr int64_t kGrain = 1 << 14;

class Cube final : public Routine {
 public:
  Cube(const Provider&, const Attributes& attributes)
      : source_(ReadArray(attributes, "src")), destination_(ReadArray(attributes, "dst")) {
    if (source_.type != ElementType::kF32) Unsupported("src: expected f32");
    if (destination_.type != source_.type) Invalid("dst: expected the type of src");
    if (destination_.dims != source_.dims || destination_.strides != source_.strides) {
      Invalid("dst: expected the dimensions and strides of src");
    }
    if (source_.BufferBytes() != source_.Bytes() || destination_.BufferBytes() != source_.Bytes()) {
      Unsupported("src: expected the whole of its buffer");
    }
    operands_ = {SpecOf(source_)};
    results_ = {SpecOf(destination_), PlannedScratch(attributes)};
  }

  std::string implementation() const override { return "cube"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const float*>(buffers.operands[0]);
    auto* to = static_cast<float*>(buffers.results[0]);
    parallel.For(source_.Bytes() / ElementBytes(source_.type), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = from[i] * from[i] * from[i];
    });
  }

 private:
  StridedArray source_, destination_;
};

const Family<Cube, kOwnEverywhere> family("cube");

}  // namespace

}  // namespace hlo_dispatch::elementwise
