// Attributes given as a Python dict; the counterpart of FfiAttributes.
#ifndef HLO_DISPATCH_PYTHON_ATTRIBUTES_H_
#define HLO_DISPATCH_PYTHON_ATTRIBUTES_H_

#include <memory>

#include "common/stored_attributes.h"
#include "python/border.h"

namespace hlo_dispatch::python {

// A copy of the dict; throws Failure(kInvalid) or PythonError for names that are no text.
std::unique_ptr<StoredAttributes> StoreDictionary(PyObject* dictionary);

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_ATTRIBUTES_H_
