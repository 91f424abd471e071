// Elementwise regions of a flat graph.
#ifndef HLO_DISPATCH_PYTHON_ELEMENTWISE_REGION_H_
#define HLO_DISPATCH_PYTHON_ELEMENTWISE_REGION_H_

#include "python/interop.h"

namespace hlo_dispatch::python {

// Both: dispatch/hlo_dispatch/_kernels.pyi has arguments and result.
Owned GrowRegion(PyObject* arguments);
Owned RegionStructure(PyObject* arguments);

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_ELEMENTWISE_REGION_H_
