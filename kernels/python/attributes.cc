#include "python/attributes.h"

#include <optional>
#include <string>
#include <vector>

namespace hlo_dispatch::python {

namespace {

// A whole number (NumPy's included), or nothing.
std::optional<int64_t> StoreInteger(PyObject* value) {
  Owned index(PyNumber_Index(value));
  const long long integer = index == nullptr ? -1 : PyLong_AsLongLong(index.get());
  if (integer == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return std::nullopt;
  }
  return integer;
}

void StoreSequence(hlo_dispatch_attributes* into, const char* name, PyObject* value) {
  const Py_ssize_t size = PySequence_Size(value);
  if (size < 0) PyErr_Clear();
  std::vector<int64_t> integers;
  for (Py_ssize_t i = 0; i < size; ++i) {
    std::optional<int64_t> integer = StoreInteger(Checked(PySequence_GetItem(value, i)).get());
    if (!integer.has_value()) return hlo_dispatch_set_other(into, name);
    integers.push_back(*integer);
  }
  if (size < 0) return hlo_dispatch_set_other(into, name);
  hlo_dispatch_set_integers(into, name, integers.data(), integers.size());
}

void Store(hlo_dispatch_attributes* into, const char* name, PyObject* value) {
  if (PyDict_Check(value)) return hlo_dispatch_set_nested(into, name, StoreDictionary(value).get());
  if (PyFloat_Check(value)) return hlo_dispatch_set_real(into, name, PyFloat_AsDouble(value));
  if (PyUnicode_Check(value)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text == nullptr) throw PythonError();
    return hlo_dispatch_set_text(into, name, text, static_cast<size_t>(size));
  }
  if (std::optional<int64_t> integer = StoreInteger(value)) return hlo_dispatch_set_integer(into, name, *integer);
  StoreSequence(into, name, value);
}

}  // namespace

OwnedAttributes StoreDictionary(PyObject* dictionary) {
  OwnedAttributes stored(hlo_dispatch_attributes_new());
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(dictionary, &position, &key, &value);) {
    const char* name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, nullptr) : nullptr;
    if (name == nullptr) {
      PyErr_SetString(PyExc_ValueError, "an attribute's name is not a string");
      throw PythonError();
    }
    Store(stored.get(), name, value);
  }
  return stored;
}

}  // namespace hlo_dispatch::python
