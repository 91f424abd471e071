// Attributes given as a Python dict.
#ifndef HLO_DISPATCH_PYTHON_ATTRIBUTES_H_
#define HLO_DISPATCH_PYTHON_ATTRIBUTES_H_

#include <memory>

#include "hlo_dispatch/kernels.h"
#include "python/interop.h"

namespace hlo_dispatch::python {

struct FreeAttributes {
  void operator()(hlo_dispatch_attributes* attributes) const { hlo_dispatch_attributes_free(attributes); }
};
using OwnedAttributes = std::unique_ptr<hlo_dispatch_attributes, FreeAttributes>;

// A copy of the dict; throws PythonError for names that are no text.
OwnedAttributes StoreDictionary(PyObject* dictionary);

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_ATTRIBUTES_H_
