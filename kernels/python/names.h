// Opcodes and names of a serialized module.
#ifndef HLO_DISPATCH_PYTHON_NAMES_H_
#define HLO_DISPATCH_PYTHON_NAMES_H_

#include "python/interop.h"

namespace hlo_dispatch::python {

// Serialized HloModuleProto → id of each computation → the set of its opcodes, and the set of all names of computations
// and instructions.
Owned OpcodesAndNames(PyObject* serialized);

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_NAMES_H_
