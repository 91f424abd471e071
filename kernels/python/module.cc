// hlo_dispatch._kernels, by Python's stable C interface, so that one build serves every version from 3.11 on. Called by
// hlo_dispatch/vendor only.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/failure.h"
#include "common/inquiry.h"
#include "common/loader.h"
#include "common/raw_call.h"
#include "common/registry.h"
#include "common/signal_actions.h"
#include "lapack/provider.h"
#include "onednn/library.h"
#include "python/attributes.h"
#include "python/border.h"

namespace hlo_dispatch::python {
namespace {

PyObject* LoadOnednn(PyObject*, PyObject* arguments) {
  return RaisingInPython([&] {
    PyObject* path = nullptr;
    int bind = 0;
    if (!PyArg_ParseTuple(arguments, "O&p", PyUnicode_FSConverter, &path, &bind)) throw PythonError();
    const Owned owned(path);
    const onednn::Library& library = onednn::Library::Load(PyBytes_AsString(path), bind != 0);
    return Checked(Py_BuildValue("(ss)", library.version().c_str(), library.runtime().c_str()));
  });
}

PyObject* load_in_python = nullptr;  // set once, under Python's lock

// Called by any thread, whether or not it has Python's lock.
std::string AskPython(const std::string& name) {
  if (!Py_IsInitialized()) return "Python has ended";
  const PyGILState_STATE state = PyGILState_Ensure();
  std::string problem = "its loader failed";
  {
    Owned answer(PyObject_CallFunction(load_in_python, "s", name.c_str()));
    const char* text = answer == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(answer.get(), nullptr);
    if (text != nullptr) problem = text;
    PyErr_Clear();
  }
  PyGILState_Release(state);
  return problem;
}

PyObject* LoadWith(PyObject*, PyObject* function) {
  return RaisingInPython([&] {
    if (load_in_python == nullptr) load_in_python = Py_NewRef(function);
    SetLoader(AskPython);
    return Owned(Py_NewRef(Py_None));
  });
}

constexpr char kSignalActions[] = "hlo_dispatch signal actions";

void DestroySignalActions(PyObject* capsule) {
  delete static_cast<SignalActions*>(PyCapsule_GetPointer(capsule, kSignalActions));
}

PyObject* KeepSignals(PyObject*, PyObject*) {
  return RaisingInPython([] {
    auto actions = std::make_unique<SignalActions>();
    Owned capsule = Checked(PyCapsule_New(actions.get(), kSignalActions, DestroySignalActions));
    actions.release();
    return capsule;
  });
}

PyObject* OfferMkl(PyObject*, PyObject* arguments) {
  return RaisingInPython([&] {
    PyObject* path = nullptr;
    const char* version = nullptr;
    if (!PyArg_ParseTuple(arguments, "O&s", PyUnicode_FSConverter, &path, &version)) throw PythonError();
    const Owned owned(path);
    lapack::Provider::OfferMkl(PyBytes_AsString(path), version);
    return Owned(Py_NewRef(Py_None));
  });
}

PyObject* OfferScipy(PyObject*, PyObject* arguments) {
  return RaisingInPython([&] {
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

struct Question {
  const Kernel* kernel;
  std::unique_ptr<StoredAttributes> attributes;
};

Question ReadQuestion(PyObject* arguments) {
  const char* target = nullptr;
  PyObject* attributes = nullptr;
  if (!PyArg_ParseTuple(arguments, "sO!", &target, &PyDict_Type, &attributes)) throw PythonError();
  return {&KernelOf(target), StoreDictionary(attributes)};
}

template <typename Body>
Owned AnswerOf(Body body) {
  const Answer answer = [&] {
    WithoutLock without_lock;
    return body();
  }();
  return Checked(Py_BuildValue("(sLOLs)", answer.implementation.c_str(), static_cast<long long>(answer.scratch_bytes),
                               answer.reorders ? Py_True : Py_False, static_cast<long long>(answer.packed_bytes),
                               answer.packed_layout.c_str()));
}

PyObject* Plan(PyObject*, PyObject* arguments) {
  return RaisingInPython([&] {
    const Question question = ReadQuestion(arguments);
    return AnswerOf([&] { return question.kernel->plan(*question.attributes); });
  });
}

PyObject* Ask(PyObject*, PyObject* arguments) {
  return RaisingInPython([&] {
    Question question = ReadQuestion(arguments);
    return Checked(PyLong_FromLongLong(Inquiries::Get().Ask(question.kernel->plan, std::move(question.attributes))));
  });
}

PyObject* WaitForAnswer(PyObject*, PyObject* number) {
  return RaisingInPython([&] {
    const long long asked = PyLong_AsLongLong(number);
    if (asked == -1 && PyErr_Occurred()) throw PythonError();
    return AnswerOf([&] { return Inquiries::Get().Wait(asked); });
  });
}

constexpr char kRawCall[] = "hlo_dispatch raw call";

void DestroyRawCall(PyObject* capsule) { delete static_cast<RawCall*>(PyCapsule_GetPointer(capsule, kRawCall)); }

PyObject* MakeRawCall(PyObject*, PyObject* arguments) {
  return RaisingInPython([&] {
    const char* target = nullptr;
    PyObject *attributes = nullptr, *buffers = nullptr;
    if (!PyArg_ParseTuple(arguments, "sO!O!", &target, &PyDict_Type, &attributes, &PyList_Type, &buffers)) {
      throw PythonError();
    }
    std::vector<RawCall::Given> given;
    for (Py_ssize_t i = 0; i < PyList_Size(buffers); ++i) {
      unsigned long long address = 0;
      long long bytes = 0;
      if (!PyArg_ParseTuple(PyList_GetItem(buffers, i), "KL", &address, &bytes)) throw PythonError();
      given.push_back({reinterpret_cast<void*>(static_cast<uintptr_t>(address)), bytes});
    }
    const Kernel& kernel = KernelOf(target);
    if (kernel.raw_call == nullptr) throw Failure(FailureKind::kUnsupported, kernel.name + " is called by XLA only");
    const std::unique_ptr<StoredAttributes> stored = StoreDictionary(attributes);
    std::unique_ptr<RawCall> call = [&] {
      WithoutLock without_lock;
      return kernel.raw_call(*stored, given);
    }();
    Owned capsule = Checked(PyCapsule_New(call.get(), kRawCall, DestroyRawCall));
    call.release();
    return capsule;
  });
}

PyObject* RunRawCall(PyObject*, PyObject* arguments) {
  return RaisingInPython([&] {
    PyObject* capsule = nullptr;
    long long count = 0;
    if (!PyArg_ParseTuple(arguments, "OL", &capsule, &count)) throw PythonError();
    auto* call = static_cast<RawCall*>(PyCapsule_GetPointer(capsule, kRawCall));
    if (call == nullptr) throw PythonError();
    {
      WithoutLock without_lock;
      call->Run(count);
    }
    return Checked(PyBool_FromLong(1));
  });
}

PyObject* Finish(PyObject*, PyObject*) {
  return RaisingInPython([] {
    {
      WithoutLock without_lock;
      Inquiries::Get().Finish();
    }
    return Checked(PyBool_FromLong(1));
  });
}

Owned Capsule(const void* address) { return Checked(PyCapsule_New(const_cast<void*>(address), nullptr, nullptr)); }

Owned HandlerCapsule(XLA_FFI_Handler* handler) { return Capsule(reinterpret_cast<const void*>(handler)); }

Owned StageCapsules(const Kernel& kernel) {
  return Checked(Py_BuildValue("{sNsN}", "instantiate", HandlerCapsule(kernel.instantiate).release(), "execute",
                               HandlerCapsule(kernel.execute).release()));
}

Owned TypeCapsules(const void* type_id, const void* type_info) {
  return Checked(
      Py_BuildValue("{sNsN}", "type_id", Capsule(type_id).release(), "type_info", Capsule(type_info).release()));
}

void SetItem(const Owned& dictionary, const std::string& name, const Owned& value) {
  if (PyDict_SetItemString(dictionary.get(), name.c_str(), value.get()) != 0) throw PythonError();
}

PyObject* Registrations(PyObject*, PyObject*) {
  return RaisingInPython([] {
    Owned types = Checked(PyDict_New());
    for (const StateType* type : StateTypes()) {
      SetItem(types, type->name, TypeCapsules(type->id, type->info));
    }
    Owned targets = Checked(PyDict_New());
    for (const Kernel* kernel : Kernels()) {
      SetItem(targets, kernel->target(), StageCapsules(*kernel));
    }
    return Checked(Py_BuildValue("{sNsN}", "types", types.release(), "targets", targets.release()));
  });
}

// What Python reads of a kernel: hlo_dispatch/vendor/registry.py has the names.
Owned Describe(const Kernel& kernel) {
  Owned routines = Checked(PyTuple_New(static_cast<Py_ssize_t>(kernel.routines.size())));
  for (size_t i = 0; i < kernel.routines.size(); ++i) {
    Owned routine = Checked(PyUnicode_FromString(kernel.routines[i].c_str()));
    if (PyTuple_SetItem(routines.get(), static_cast<Py_ssize_t>(i), routine.release()) != 0) throw PythonError();
  }
  const char* instructions = kernel.instructions == nullptr ? "" : kernel.instructions->name;
  return Checked(Py_BuildValue("{sssssssssOsssssN}", "name", kernel.name.c_str(), "target", kernel.target().c_str(),
                               "library", kernel.library.c_str(), "instructions", instructions, "runs_alone",
                               kernel.raw_call == nullptr ? Py_False : Py_True, "packed_by", kernel.packed_by.c_str(),
                               "joined_by", kernel.joined_by.c_str(), "routines", routines.release()));
}

PyObject* Registry(PyObject*, PyObject*) {
  return RaisingInPython([] {
    Owned kernels = Checked(PyList_New(0));
    for (const Kernel* kernel : Kernels()) {
      if (PyList_Append(kernels.get(), Describe(*kernel).get()) != 0) throw PythonError();
    }
    return Checked(Py_BuildValue("{sLsssN}", "abi", static_cast<long long>(kAbi), "own_version", lapack::kOwnVersion,
                                 "kernels", kernels.release()));
  });
}

PyMethodDef methods[] = {
    {"load_onednn", LoadOnednn, METH_VARARGS,
     "load_onednn(path, bind threads) -> (version, runtime): opens oneDNN for this process."},
    {"keep_signals", KeepSignals, METH_NOARGS,
     "keep_signals() -> object: when it goes, signal handlers that libraries loaded meanwhile took over are put back."},
    {"load_with", LoadWith, METH_O,
     "load_with(function): function(name of a library) loads it and returns why not, or ''; called when an executable "
     "first needs it. The first function given stays."},
    {"offer_mkl", OfferMkl, METH_VARARGS, "offer_mkl(path, version): its BLAS and LAPACK are there to be called."},
    {"offer_scipy", OfferScipy, METH_VARARGS,
     "offer_scipy({routine: address}, version): the BLAS and LAPACK that JAX calls are there to be called."},
    {"plan", Plan, METH_VARARGS,
     "plan(target, attributes) -> (implementation, scratch bytes, whether the weights are reordered in every call, "
     "bytes of packed weights, their layout)"},
    {"ask", Ask, METH_VARARGS,
     "ask(target, attributes) -> number: the same question, worked on while the caller goes on"},
    {"wait", WaitForAnswer, METH_O, "wait(number) -> what plan would have returned or raised; once for each number"},
    {"raw_call", MakeRawCall, METH_VARARGS,
     "raw_call(target, attributes, buffers) -> the call on these operands, without XLA."},
    {"run_raw", RunRawCall, METH_VARARGS,
     "run_raw(call, count): runs a raw call so often; not from two threads at once."},
    {"finish", Finish, METH_NOARGS, "finish(): drops unanswered questions and waits for those being worked on."},
    {"registrations", Registrations, METH_NOARGS,
     "registrations() -> {'types': ..., 'targets': ...}: capsules for jax.ffi, types to be registered first."},
    {"registry", Registry, METH_NOARGS,
     "registry() -> {'abi': ..., 'own_version': ..., 'kernels': [...]}: what there is to be called; loads nothing."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "_kernels",
                      "Vendor kernels behind XLA's typed FFI.",
                      0,
                      methods,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

}  // namespace
}  // namespace hlo_dispatch::python

PyMODINIT_FUNC PyInit__kernels() { return PyModule_Create(&hlo_dispatch::python::module); }
