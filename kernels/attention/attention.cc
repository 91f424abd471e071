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
    operands_ = {SpecOf(problem_.query), SpecOf(problem_.key), SpecOf(problem_.value)};
    for (const Operand& other : problem_.others) operands_.push_back(SpecOf(other));
    results_ = {SpecOf(problem_.destination), PlannedScratch(attributes)};
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

const Family<Attention, kOwnEverywhere> family("attention", {{}, "", kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::attention
