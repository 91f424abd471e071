// The flat graph of an HLO computation, from serialized messages.
#ifndef HLO_DISPATCH_PYTHON_FLAT_GRAPH_H_
#define HLO_DISPATCH_PYTHON_FLAT_GRAPH_H_

#include "python/interop.h"

namespace hlo_dispatch::python {

// Value numbering of a computation with every fusion expanded; dispatch/hlo_dispatch/_kernels.pyi has the arguments.
Owned FlatGraph(PyObject* arguments);

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_FLAT_GRAPH_H_
