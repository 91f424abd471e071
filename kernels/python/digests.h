// Digests of HLO instructions and computations, from serialized messages.
#ifndef HLO_DISPATCH_PYTHON_DIGESTS_H_
#define HLO_DISPATCH_PYTHON_DIGESTS_H_

#include "python/interop.h"

namespace hlo_dispatch::python {

// (serialized HloInstructionProto, id of a computation → digest, plain opcodes, serialized shape of a constant →
// whether its elements do not count) → the digest's input: all that the instruction computes, without name, id, source
// location and operands.
Owned InstructionDigestInput(PyObject* arguments);

// (serialized HloComputationProto, the same) → by ids of its instructions: the digest's input, the operands (a tuple),
// and the users (a list), each once.
Owned InstructionIndex(PyObject* arguments);

// (serialized HloComputationProto, the same) → the digest's input: its instructions, the positions of their operands,
// and its root's.
Owned ComputationDigestInput(PyObject* arguments);

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_DIGESTS_H_
