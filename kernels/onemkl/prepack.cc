// hlo_dispatch.onemkl.pack
//
//   packed = weights, as a call of onemkl.gemm with weights_format packed reads them: weight prepacking
//
// All attributes of that call are given beside `target`, its kernel's name. Operands: weights, as the call would read
// them plain. Results: packed (u8), scratch.
#include <string>
#include <vector>

#include "common/failure.h"
#include "common/family.h"
#include "onemkl/gemm.h"

namespace hlo_dispatch::onemkl {

namespace {

class Prepack final : public Routine {
 public:
  Prepack(const Provider& provider, const Attributes& attributes) : call_(provider, attributes) {
    const std::string target = attributes.Text("target");
    if (target != kGemm) {
      Invalid(std::string("attribute 'target': expected a kernel that takes packed "
                          "weights (") +
              kGemm + "), got '" + target + "'");
    }
    if (call_.prepacked() == nullptr) Invalid("attribute 'weights_format': expected packed");
    call_.prepacked()->CheckIfDescribed(attributes, call_.implementation());
    if (call_.panels() == nullptr) {
      Unsupported(call_.implementation() + " reads these weights as they are: there is nothing to pack");
    }
    const StridedArray& weights = call_.plain_weights();
    operands_ = {{"weights", xla::ffi::F32, weights.BufferBytes()}};
    results_ = {{"packed", xla::ffi::U8, call_.prepacked()->bytes}, call_.results()[1]};
  }

  std::string implementation() const override { return "sgemm_pack"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* weights =
        static_cast<const float*>(call_.plain_weights().Begin(const_cast<void*>(buffers.operands[0])));
    call_.panels()->Prepack(weights, buffers.results[0], parallel);
  }

 private:
  Gemm call_;
};

const Family<Prepack, kMkl> family("pack");

}  // namespace

}  // namespace hlo_dispatch::onemkl
