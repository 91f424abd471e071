// Python interop: owned references, errors as exceptions, the GIL.
#ifndef HLO_DISPATCH_PYTHON_INTEROP_H_
#define HLO_DISPATCH_PYTHON_INTEROP_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>

#include "hlo_dispatch/kernels.h"

namespace hlo_dispatch::python {

// A Python exception is set; unwinds to the outermost C++ frame.
struct PythonError {};

struct DecreaseReference {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, DecreaseReference>;

inline Owned Checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return Owned(object);
}

inline PyObject* PythonKind(hlo_dispatch_error_kind kind) {
  switch (kind) {
    case HLO_DISPATCH_INVALID:
      return PyExc_ValueError;
    case HLO_DISPATCH_UNSUPPORTED:
      return PyExc_NotImplementedError;
    case HLO_DISPATCH_UNAVAILABLE:
      return PyExc_ImportError;
    case HLO_DISPATCH_INTERNAL:
      return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

// Throws the library's error, unless it is null; the GIL is held.
inline void Check(hlo_dispatch_error* error) {
  if (error == nullptr) return;
  PyErr_SetString(PythonKind(hlo_dispatch_error_kind_of(error)), hlo_dispatch_error_message(error));
  hlo_dispatch_error_free(error);
  throw PythonError();
}

// A function as Python calls it: what it throws becomes a Python exception.
template <Owned (*function)(PyObject* arguments)>
PyObject* Python(PyObject*, PyObject* arguments) {
  try {
    return function(arguments).release();
  } catch (const PythonError&) {
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Releases the GIL during its lifetime.
class WithoutLock {
 public:
  WithoutLock() : state_(PyEval_SaveThread()) {}
  ~WithoutLock() { PyEval_RestoreThread(state_); }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_INTEROP_H_
