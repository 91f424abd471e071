// A routine: what one custom-call computes, made from its attributes when an executable is instantiated and run
// by any number of threads afterwards. Linear algebra and Fourier transforms are routines; oneDNN's primitives,
// which have operands of their own kind, are not (onednn/call.h).
#ifndef HLO_DISPATCH_COMMON_ROUTINE_H_
#define HLO_DISPATCH_COMMON_ROUTINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/attributes.h"
#include "common/buffer_spec.h"
#include "common/ffi.h"
#include "common/parallel.h"
#include "common/prepacked_weights.h"
#include "common/registry.h"

namespace hlo_dispatch {

struct RoutineBuffers {
  std::vector<const void*> operands;
  std::vector<void*> results;
};

class Routine {
 public:
  virtual ~Routine() = default;

  // The library's own name for what runs, such as spotrf.
  virtual std::string implementation() const = 0;
  const std::vector<BufferSpec>& operands() const { return operands_; }
  const std::vector<BufferSpec>& results() const { return results_; }
  // Prepacked weights that the attributes ask for; null: none.
  virtual const PrepackedWeights* prepacked() const { return nullptr; }
  // Whether its result may overwrite its first operand: each element is read before the same one is written.
  virtual bool may_write_over_source() const { return false; }
  // The buffers are as long as the specs say. Called from several threads at once.
  virtual void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const = 0;

 protected:
  std::vector<BufferSpec> operands_, results_;
};

// Throws Failure(kUnsupported) where the library has nothing for such a call.
using RoutineMaker = std::unique_ptr<Routine> (*)(const Attributes&);

// Both stages of a call: XLA's handlers, and kernel support queries.
std::unique_ptr<xla::ffi::Ffi> RoutineInstantiation(const Kernel& kernel, RoutineMaker make);
XLA_FFI_Handler* RoutineExecution();
Answer AnswerOfRoutine(const Kernel& kernel, RoutineMaker make, const Attributes& attributes);

// Registers a kernel whose calls are routines. XLA's handlers are plain functions, so that each maker has its own.
template <RoutineMaker make>
class RoutineKernel {
 public:
  // `kernel` has its name, its library and what it needs; the handlers are added here.
  static void Add(Kernel kernel) {
    kernel.plan = Plan;
    kernel.make_routine = make;
    kernel.instantiate = Instantiate;
    kernel.execute = RoutineExecution();
    kernel_ = &Register(std::move(kernel));
  }

 private:
  static Answer Plan(const Attributes& attributes) { return AnswerOfRoutine(*kernel_, make, attributes); }

  static XLA_FFI_Error* Instantiate(XLA_FFI_CallFrame* frame) {
    static auto* handler = RoutineInstantiation(*kernel_, make).release();
    return handler->Call(frame);
  }

  inline static const Kernel* kernel_ = nullptr;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ROUTINE_H_
