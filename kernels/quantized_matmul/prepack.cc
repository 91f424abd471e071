// hlo_dispatch.own.pack
//
//   packed = weights, as a call of own.narrow_product with weights_format packed reads them: weight prepacking
//
// All attributes of that call are given beside `target`, its kernel's name. Operands: weights, as the call would read
// them plain. Results: packed (u8), scratch.
#include <optional>
#include <string>

#include "common/failure.h"
#include "common/family.h"
#include "quantized_matmul/packed_layout.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

constexpr char kTarget[] = "own.narrow_product";

class Prepack final : public Routine {
 public:
  Prepack(const Provider& provider, const Attributes& attributes)
      : problem_(provider, attributes), prepacked_(PrepackedOf(problem_)) {
    const std::string target = attributes.Text("target");
    if (target != kTarget) {
      Invalid(std::string("attribute 'target': expected a kernel that takes packed weights (") + kTarget + "), got '" +
              target + "'");
    }
    if (!prepacked_.has_value()) Invalid("attribute 'weights_format': expected packed");
    if (prepacked_->bytes == 0) {
      Unsupported(std::string(kTarget) + " reads these weights as they are: there is nothing to pack");
    }
    prepacked_->CheckIfDescribed(attributes, kTarget);
    operands_ = {problem_.operands(/*packed_bytes=*/0)[1]};
    results_ = {{"packed", xla::ffi::U8, prepacked_->bytes}, PlannedScratch(attributes)};
  }

  std::string implementation() const override { return "pack:" + prepacked_->layout; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    PackedLayout(problem_.weights).Pack(problem_.weights, buffers.operands[0], buffers.results[0], parallel);
  }

 private:
  Problem problem_;
  std::optional<PrepackedWeights> prepacked_;
};

const Family<Prepack, kOwnEverywhere> family("pack");

}  // namespace

}  // namespace hlo_dispatch::quantized_matmul
