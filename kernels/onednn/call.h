// The border to XLA: typed FFI handlers, one pair per kernel family. Instantiation builds the primitive once
// and keeps it as the call's state; execution checks the operands against the attributes and runs it.
#ifndef HLO_DISPATCH_ONEDNN_CALL_H_
#define HLO_DISPATCH_ONEDNN_CALL_H_

#include <vector>

#include "common/ffi.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

struct KernelFamily {
  const char* target;  // custom_call_target
  Planner plan;
  XLA_FFI_Handler* instantiate;
  XLA_FFI_Handler* execute;
};

// Every kernel family of this library; module.cc hands them to Python.
const std::vector<KernelFamily>& KernelFamilies();

// The type of the state, which XLA must know before the targets are registered.
inline constexpr char kStateTypeName[] = "hlo_dispatch.onednn.call";
XLA_FFI_TypeId* StateTypeId();
const XLA_FFI_TypeInfo* StateTypeInfo();

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_CALL_H_
