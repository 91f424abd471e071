// hlo_dispatch.own.attention
//
//   dst = softmax over keys of steps(query · keyᵀ) · value
//
// The steps are score_0, score_1, ... in order: scale, add, select, causal, window, softcap.
#include <memory>
#include <string>
#include <vector>

#include "attention/blocked.h"
#include "attention/problem.h"
#include "common/failure.h"
#include "common/family.h"

namespace hlo_dispatch::attention {

namespace {

class Attention final : public Routine {
 public:
  Attention(const Provider&, const Attributes& attributes) : problem_(attributes), arithmetic_(BestArithmetic()) {
    operands_ = {problem_.query.spec(), problem_.key.spec(), problem_.value.spec()};
    for (const Operand& other : problem_.others) operands_.push_back(other.spec());
    results_ = {problem_.destination.spec(), PlannedScratch(attributes)};
  }

  std::string implementation() const override {
    return std::string("attention:") + arithmetic_.name + (TakesPairs(problem_, arithmetic_) ? ":bf16" : ":f32");
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    Attend(problem_, arithmetic_, buffers, parallel);
  }

 private:
  Problem problem_;
  const Arithmetic& arithmetic_;
};

const Family<Attention, kOwnEverywhere> family("attention", {}, "", "onednn.sequence");

}  // namespace

}  // namespace hlo_dispatch::attention
