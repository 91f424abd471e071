// hlo_dispatch._kernels: the only file that knows Python (its stable C interface, so one build serves every
// version from 3.11 on). Called by hlo_dispatch/kernels.py and libraries.py only.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/attributes.h"
#include "common/failure.h"
#include "common/routine.h"
#include "lapack/provider.h"
#include "onednn/call.h"
#include "onednn/library.h"

namespace hlo_dispatch {
namespace {

// A Python exception is set; unwinds to the border.
struct PythonError {};

struct DecreaseReference {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, DecreaseReference>;

Owned Checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return Owned(object);
}

// Attributes read from a Python dict; the counterpart of FfiAttributes.
class PythonAttributes final : public Attributes {
 public:
  explicit PythonAttributes(PyObject* dictionary) : dictionary_(dictionary) {}

  bool Has(const std::string& name) const override {
    return PyDict_GetItemString(dictionary_, name.c_str()) != nullptr;
  }

  int64_t Integer(const std::string& name) const override { return ToInteger(Get(name, "an integer"), name); }

  float Real(const std::string& name) const override {
    const double value = PyFloat_AsDouble(Get(name, "a number"));
    if (value == -1.0 && PyErr_Occurred()) Wrong(name, "a number");
    return static_cast<float>(value);
  }

  std::string Text(const std::string& name) const override {
    PyObject* value = Get(name, "a string");
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : nullptr;
    if (text == nullptr) Wrong(name, "a string");
    return std::string(text, static_cast<size_t>(size));
  }

  std::vector<int64_t> Integers(const std::string& name) const override {
    PyObject* value = Get(name, "a list of integers");
    const Py_ssize_t size = PyUnicode_Check(value) ? -1 : PySequence_Size(value);
    if (size < 0) Wrong(name, "a list of integers");
    std::vector<int64_t> values;
    values.reserve(static_cast<size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      values.push_back(ToInteger(Checked(PySequence_GetItem(value, i)).get(), name));
    }
    return values;
  }

  std::unique_ptr<Attributes> Nested(const std::string& name) const override {
    PyObject* value = Get(name, "a dict");
    if (!PyDict_Check(value)) Wrong(name, "a dict");
    return std::make_unique<PythonAttributes>(value);
  }

 private:
  PyObject* Get(const std::string& name, const char* expected) const {
    PyObject* value = PyDict_GetItemString(dictionary_, name.c_str());
    if (value != nullptr) return value;
    throw Failure(FailureKind::kInvalid, "attribute '" + name + "' is missing (expected " + expected + ")");
  }

  [[noreturn]] static void Wrong(const std::string& name, const char* expected) {
    PyErr_Clear();
    throw Failure(FailureKind::kInvalid, "attribute '" + name + "' is not " + expected);
  }

  static int64_t ToInteger(PyObject* value, const std::string& name) {
    Owned index(PyNumber_Index(value));  // accepts NumPy's integers too
    const long long integer = index == nullptr ? -1 : PyLong_AsLongLong(index.get());
    if (integer == -1 && PyErr_Occurred()) Wrong(name, "an integer");
    return integer;
  }

  PyObject* dictionary_;
};

PyObject* PythonKind(FailureKind kind) {
  switch (kind) {
    case FailureKind::kInvalid: return PyExc_ValueError;
    case FailureKind::kUnsupported: return PyExc_NotImplementedError;
    case FailureKind::kUnavailable: return PyExc_ImportError;
    case FailureKind::kInternal: return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

// Runs `body`, turning whatever it throws into a Python exception.
template <typename Body>
PyObject* Guarded(Body body) {
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

PyObject* LoadOnednn(PyObject*, PyObject* path) {
  return Guarded([&] {
    Owned encoded;
    PyObject* bytes = nullptr;
    if (!PyUnicode_FSConverter(path, &bytes)) throw PythonError();
    encoded.reset(bytes);
    const onednn::Library& library = onednn::Library::Load(PyBytes_AsString(bytes));
    return Checked(Py_BuildValue("(ss)", library.version().c_str(), library.runtime().c_str()));
  });
}

PyObject* OfferMkl(PyObject*, PyObject* arguments) {
  return Guarded([&] {
    PyObject* path = nullptr;
    const char* version = nullptr;
    if (!PyArg_ParseTuple(arguments, "O&s", PyUnicode_FSConverter, &path, &version)) throw PythonError();
    const Owned owned(path);
    lapack::Provider::OfferMkl(PyBytes_AsString(path), version);
    return Owned(Py_NewRef(Py_None));
  });
}

PyObject* OfferScipy(PyObject*, PyObject* arguments) {
  return Guarded([&] {
    PyObject* addresses = nullptr;
    const char* version = nullptr;
    if (!PyArg_ParseTuple(arguments, "O!s", &PyDict_Type, &addresses, &version)) throw PythonError();
    std::map<std::string, void*> functions;
    PyObject* name = nullptr;
    PyObject* address = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(addresses, &position, &name, &address);) {
      const char* text = PyUnicode_AsUTF8AndSize(name, nullptr);
      void* function = text == nullptr ? nullptr : PyLong_AsVoidPtr(address);
      if (PyErr_Occurred()) throw PythonError();
      functions.emplace(text, function);
    }
    lapack::Provider::OfferScipy(std::move(functions), version);
    return Owned(Py_NewRef(Py_None));
  });
}

PyObject* Plan(PyObject*, PyObject* arguments) {
  return Guarded([&] {
    const char* target = nullptr;
    PyObject* attributes = nullptr;
    if (!PyArg_ParseTuple(arguments, "sO!", &target, &PyDict_Type, &attributes)) throw PythonError();
    for (const onednn::KernelFamily& family : onednn::KernelFamilies()) {
      if (std::string(target) != family.target) continue;
      const onednn::CallPlan plan = family.plan(PythonAttributes(attributes));
      return Checked(Py_BuildValue("(sLO)", plan.implementation.c_str(), static_cast<long long>(plan.scratch_bytes),
                                   plan.Reorders() ? Py_True : Py_False));
    }
    for (const RoutineFamily& family : RoutineFamilies()) {
      if (std::string(target) != family.target) continue;
      const std::unique_ptr<Routine> routine = family.make(PythonAttributes(attributes));
      return Checked(Py_BuildValue("(siO)", routine->implementation().c_str(), 0, Py_False));
    }
    throw Failure(FailureKind::kInvalid, "there is no kernel '" + std::string(target) + "'");
  });
}

Owned Capsule(const void* address) { return Checked(PyCapsule_New(const_cast<void*>(address), nullptr, nullptr)); }

Owned HandlerCapsule(XLA_FFI_Handler* handler) { return Capsule(reinterpret_cast<const void*>(handler)); }

// {"instantiate": capsule, "execute": capsule} under the family's target.
void AddStages(const Owned& targets, const char* target, XLA_FFI_Handler* instantiate, XLA_FFI_Handler* execute) {
  Owned stages = Checked(Py_BuildValue("{sNsN}", "instantiate", HandlerCapsule(instantiate).release(), "execute",
                                       HandlerCapsule(execute).release()));
  if (PyDict_SetItemString(targets.get(), target, stages.get()) != 0) throw PythonError();
}

Owned TypeCapsules(const void* type_id, const void* type_info) {
  return Checked(
      Py_BuildValue("{sNsN}", "type_id", Capsule(type_id).release(), "type_info", Capsule(type_info).release()));
}

PyObject* Registrations(PyObject*, PyObject*) {
  return Guarded([] {
    Owned targets = Checked(PyDict_New());
    for (const onednn::KernelFamily& family : onednn::KernelFamilies()) {
      AddStages(targets, family.target, family.instantiate, family.execute);
    }
    for (const RoutineFamily& family : RoutineFamilies()) {
      AddStages(targets, family.target, family.instantiate, family.execute);
    }
    return Checked(Py_BuildValue("{s{sNsN}sN}", "types", onednn::kStateTypeName,
                                 TypeCapsules(onednn::StateTypeId(), onednn::StateTypeInfo()).release(),
                                 kRoutineStateTypeName,
                                 TypeCapsules(RoutineStateTypeId(), RoutineStateTypeInfo()).release(), "targets",
                                 targets.release()));
  });
}

PyMethodDef methods[] = {
    {"load_onednn", LoadOnednn, METH_O, "load_onednn(path) -> (version, runtime): opens oneDNN for this process."},
    {"offer_mkl", OfferMkl, METH_VARARGS, "offer_mkl(path, version): its BLAS and LAPACK are there to be called."},
    {"offer_scipy", OfferScipy, METH_VARARGS,
     "offer_scipy({routine: address}, version): the BLAS and LAPACK that JAX calls are there to be called."},
    {"plan", Plan, METH_VARARGS,
     "plan(target, attributes) -> (implementation, scratch bytes, whether the weights are reordered in every call)"},
    {"registrations", Registrations, METH_NOARGS,
     "registrations() -> {'types': ..., 'targets': ...}: capsules for jax.ffi, types to be registered first."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", "Vendor kernels behind XLA's typed FFI.", 0, methods,
                      nullptr,               nullptr,    nullptr,                                  nullptr};

}  // namespace
}  // namespace hlo_dispatch

PyMODINIT_FUNC PyInit__kernels() { return PyModule_Create(&hlo_dispatch::module); }
