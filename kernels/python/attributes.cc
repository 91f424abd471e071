#include "python/attributes.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/failure.h"

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

StoredAttributes::Value Store(PyObject* value) {
  if (PyDict_Check(value)) return std::shared_ptr<const StoredAttributes>(StoreDictionary(value));
  if (PyFloat_Check(value)) return PyFloat_AsDouble(value);
  if (PyUnicode_Check(value)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text == nullptr) throw PythonError();
    return std::string(text, static_cast<size_t>(size));
  }
  if (std::optional<int64_t> integer = StoreInteger(value)) return *integer;
  const Py_ssize_t size = PySequence_Size(value);
  if (size < 0) PyErr_Clear();
  std::vector<int64_t> integers;
  for (Py_ssize_t i = 0; i < size; ++i) {
    std::optional<int64_t> integer = StoreInteger(Checked(PySequence_GetItem(value, i)).get());
    if (!integer.has_value()) return std::monostate();
    integers.push_back(*integer);
  }
  if (size < 0) return std::monostate();
  return integers;
}

}  // namespace

std::unique_ptr<StoredAttributes> StoreDictionary(PyObject* dictionary) {
  auto stored = std::make_unique<StoredAttributes>();
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(dictionary, &position, &key, &value);) {
    Py_ssize_t size = 0;
    const char* name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &size) : nullptr;
    if (name == nullptr) throw Failure(FailureKind::kInvalid, "an attribute's name is not a string");
    stored->Set(std::string(name, static_cast<size_t>(size)), Store(value));
  }
  return stored;
}

}  // namespace hlo_dispatch::python
