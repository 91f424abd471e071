// Between Python and C++: references that are given back, failures that become exceptions, Python's lock.
#ifndef HLO_DISPATCH_PYTHON_BORDER_H_
#define HLO_DISPATCH_PYTHON_BORDER_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>

#include "common/failure.h"

namespace hlo_dispatch::python {

// A Python exception is set; unwinds to the border.
struct PythonError {};

struct DecreaseReference {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, DecreaseReference>;

inline Owned Checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return Owned(object);
}

inline PyObject* PythonKind(FailureKind kind) {
  switch (kind) {
    case FailureKind::kInvalid:
      return PyExc_ValueError;
    case FailureKind::kUnsupported:
      return PyExc_NotImplementedError;
    case FailureKind::kUnavailable:
      return PyExc_ImportError;
    case FailureKind::kInternal:
      return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

// Runs `body`, turning whatever it throws into a Python exception.
template <typename Body>
PyObject* RaisingInPython(Body body) {
  try {
    return body().release();
  } catch (const PythonError&) {
  } catch (const Failure& failure) {
    PyErr_SetString(PythonKind(failure.kind()), failure.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Lets other Python threads run while it lives.
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

#endif  // HLO_DISPATCH_PYTHON_BORDER_H_
