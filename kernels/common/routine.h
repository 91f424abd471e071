// A routine: what one custom-call computes, made from its attributes when an executable is instantiated and run
// by any number of threads afterwards. Linear algebra and Fourier transforms are routines; oneDNN's primitives,
// which have operands of their own kind, are not (onednn/call.h).
#ifndef HLO_DISPATCH_COMMON_ROUTINE_H_
#define HLO_DISPATCH_COMMON_ROUTINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/ffi.h"
#include "common/parallel.h"

namespace hlo_dispatch {

// What an operand or result of a call must be.
struct BufferSpec {
  std::string role;
  xla::ffi::DataType type;
  int64_t bytes;
};

struct RoutineBuffers {
  std::vector<const void*> operands;
  std::vector<void*> results;
};

class Routine {
 public:
  virtual ~Routine() = default;

  // The library's own name for what runs, such as spotrf.
  virtual std::string implementation() const = 0;
  virtual const std::vector<BufferSpec>& operands() const = 0;
  virtual const std::vector<BufferSpec>& results() const = 0;
  // The buffers are as long as the specs say. Called from several threads at once.
  virtual void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const = 0;
};

// Throws Failure(kUnsupported) where the library has nothing for such a call.
using RoutineMaker = std::unique_ptr<Routine> (*)(const Attributes&);

struct RoutineFamily {
  const char* target;  // custom_call_target
  RoutineMaker make;
  XLA_FFI_Handler* instantiate;
  XLA_FFI_Handler* execute;
};

// Every family of every library; module.cc hands them to Python.
const std::vector<RoutineFamily>& RoutineFamilies();

// The type of the state, which XLA must know before the targets are registered.
inline constexpr char kRoutineStateTypeName[] = "hlo_dispatch.routine";
XLA_FFI_TypeId* RoutineStateTypeId();
const XLA_FFI_TypeInfo* RoutineStateTypeInfo();

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ROUTINE_H_
