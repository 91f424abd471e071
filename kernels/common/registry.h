// The kernels of this extension. Each is registered by a static object in the file that defines it, through the class
// of its kind (onednn/call.h, common/routine.h), when the extension is loaded; nothing else lists them.
#ifndef HLO_DISPATCH_COMMON_REGISTRY_H_
#define HLO_DISPATCH_COMMON_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/processor.h"
#include "common/raw_call.h"
#include "xla/ffi/api/c_api.h"

namespace hlo_dispatch {

class Routine;

// The version of the attributes' meaning; raised whenever an old custom-call would be misread.
inline constexpr int64_t kAbi = 1;

// Answer to a kernel support query.
struct Answer {
  std::string implementation;  // the library's own name for what runs
  int64_t scratch_bytes = 0;
  bool reorders = false;           // whether every call copies an operand or the result between layouts
  int64_t packed_bytes = 0;        // of prepacked weights, where the attributes ask for them; 0: nothing to prepack
  std::string packed_layout = {};  // which layout that is
};

// Throws where the attributes are wrong or the library has nothing for such a call.
using AnswerMaker = Answer (*)(const Attributes&);

struct Kernel {
  std::string name;                            // as tables and reports call it, such as onednn.matmul
  std::string library;                         // which library computes it
  const Instructions* instructions = nullptr;  // what the processor must have; null: nothing in particular
  std::vector<std::string> routines;  // of BLAS and LAPACK that it calls, without the letter of the element type
  AnswerMaker plan = nullptr;
  std::string packed_by;               // the kernel that prepacks its weights; empty: they are never prepacked
  std::string joined_by;               // the call-group kernel that its calls may be members of; empty: there is none
  bool only_copies = false;            // it computes nothing: going through whole rows one by one is as fast as it gets
  bool may_write_over_source = false;  // its result may overwrite its first operand, if their layouts are the same
  RawCallMaker raw_call = nullptr;     // null: it cannot be called without XLA
  // Makes what its calls compute, of a kernel whose calls are routines (routine.h); else null.
  std::unique_ptr<Routine> (*make_routine)(const Attributes&) = nullptr;
  XLA_FFI_Handler* instantiate = nullptr;
  XLA_FFI_Handler* execute = nullptr;

  // The custom-call's.
  std::string target() const { return "hlo_dispatch." + name; }
};

// Adds a kernel, while the extension is loaded only. Kernels live as long as the process; the order does not matter.
const Kernel& Register(Kernel kernel);

// All of them, sorted by name.
std::vector<const Kernel*> Kernels();

// Throws Failure(kInvalid) where there is none.
const Kernel& KernelOf(const std::string& target);

// Throws unless the attributes have the meaning that this code gives them, and the processor has what the kernel needs.
void CheckCall(const Kernel& kernel, const Attributes& attributes);

// The type of a state that handlers keep, which XLA must know before the targets are registered.
struct StateType {
  std::string name;
  XLA_FFI_TypeId* id;
  const XLA_FFI_TypeInfo* info;
};

const StateType& Register(StateType type);
std::vector<const StateType*> StateTypes();

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_REGISTRY_H_
