// hlo_dispatch._kernels, by Python's stable C interface, so that one build serves every version from 3.11 on. All that
// it does with kernels it has from libhlo_dispatch_kernels.so, by the interface that every host has. Reached through
// hlo_dispatch/vendor only.
#include <string>
#include <vector>

#include "hlo_dispatch/kernels.h"
#include "python/attributes.h"
#include "python/digests.h"
#include "python/elementwise_region.h"
#include "python/flat_graph.h"
#include "python/interop.h"
#include "python/leaf_check.h"
#include "python/names.h"

namespace hlo_dispatch::python {
namespace {

Owned LoadOnednn(PyObject* arguments) {
  PyObject* path = nullptr;
  int bind = 0;
  if (!PyArg_ParseTuple(arguments, "O&p", PyUnicode_FSConverter, &path, &bind)) throw PythonError();
  const Owned owned(path);
  hlo_dispatch_loaded loaded;
  Check(hlo_dispatch_load_onednn(PyBytes_AsString(path), bind, &loaded));
  return Checked(Py_BuildValue("(sss)", loaded.version, loaded.runtime, loaded.note));
}

Owned LoadOnemkl(PyObject* given) {
  PyObject* path = nullptr;
  if (!PyUnicode_FSConverter(given, &path)) throw PythonError();
  const Owned owned(path);
  hlo_dispatch_loaded loaded;
  Check(hlo_dispatch_load_onemkl(PyBytes_AsString(path), &loaded));
  return Checked(Py_BuildValue("(ss)", loaded.version, loaded.runtime));
}

Owned LoadSvml(PyObject* given) {
  PyObject* path = nullptr;
  if (!PyUnicode_FSConverter(given, &path)) throw PythonError();
  const Owned owned(path);
  hlo_dispatch_loaded loaded;
  Check(hlo_dispatch_load_svml(PyBytes_AsString(path), &loaded));
  return Checked(Py_BuildValue("(ss)", loaded.version, loaded.runtime));
}

PyObject* load_in_python = nullptr;  // set once, under Python's lock

// Called by any thread, with or without the GIL.
void AskPython(const char* name, hlo_dispatch_fail fail, void* why) {
  if (!Py_IsInitialized()) return fail(why, "Python has ended");
  const PyGILState_STATE state = PyGILState_Ensure();
  {
    Owned answer(PyObject_CallFunction(load_in_python, "s", name));
    const char* text = answer == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(answer.get(), nullptr);
    if (text == nullptr || *text != '\0') fail(why, text == nullptr ? "its loader failed" : text);
    PyErr_Clear();
  }
  PyGILState_Release(state);
}

Owned LoadWith(PyObject* function) {
  if (load_in_python == nullptr) load_in_python = Py_NewRef(function);
  hlo_dispatch_load_with(AskPython);
  return Owned(Py_NewRef(Py_None));
}

constexpr char kSignals[] = "hlo_dispatch signal actions";

void RestoreSignals(PyObject* capsule) {
  hlo_dispatch_restore_signals(static_cast<hlo_dispatch_signals*>(PyCapsule_GetPointer(capsule, kSignals)));
}

Owned KeepSignals(PyObject*) { return Checked(PyCapsule_New(hlo_dispatch_keep_signals(), kSignals, RestoreSignals)); }

Owned OfferScipy(PyObject* arguments) {
  PyObject* functions = nullptr;
  const char* version = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!s", &PyDict_Type, &functions, &version)) throw PythonError();
  std::vector<const char*> names;
  std::vector<void*> addresses;
  PyObject* name = nullptr;
  PyObject* address = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(functions, &position, &name, &address);) {
    names.push_back(PyUnicode_AsUTF8AndSize(name, nullptr));
    addresses.push_back(names.back() == nullptr ? nullptr : PyLong_AsVoidPtr(address));
    if (PyErr_Occurred()) throw PythonError();
  }
  Check(hlo_dispatch_offer_scipy(names.data(), addresses.data(), names.size(), version));
  return Owned(Py_NewRef(Py_None));
}

struct SupportQuery {
  const char* target = nullptr;
  OwnedAttributes attributes;
};

SupportQuery ReadSupportQuery(PyObject* arguments) {
  SupportQuery query;
  PyObject* attributes = nullptr;
  if (!PyArg_ParseTuple(arguments, "sO!", &query.target, &PyDict_Type, &attributes)) throw PythonError();
  query.attributes = StoreDictionary(attributes);
  return query;
}

// `ask` is called without the GIL.
template <typename Ask>
Owned AnswerOf(Ask ask) {
  hlo_dispatch_answer* answer = nullptr;
  Check([&] {
    WithoutLock without_lock;
    return ask(&answer);
  }());
  PyObject* told = Py_BuildValue("(sLOLs)", answer->implementation, static_cast<long long>(answer->scratch_bytes),
                                 answer->reorders != 0 ? Py_True : Py_False,
                                 static_cast<long long>(answer->packed_bytes), answer->packed_layout);
  hlo_dispatch_answer_free(answer);
  return Checked(told);
}

Owned Plan(PyObject* arguments) {
  const SupportQuery query = ReadSupportQuery(arguments);
  return AnswerOf(
      [&](hlo_dispatch_answer** answer) { return hlo_dispatch_plan(query.target, query.attributes.get(), answer); });
}

Owned Ask(PyObject* arguments) {
  const SupportQuery query = ReadSupportQuery(arguments);
  int64_t number = 0;
  Check(hlo_dispatch_ask(query.target, query.attributes.get(), &number));
  return Checked(PyLong_FromLongLong(number));
}

Owned WaitForAnswer(PyObject* number) {
  const long long asked = PyLong_AsLongLong(number);
  if (asked == -1 && PyErr_Occurred()) throw PythonError();
  return AnswerOf([&](hlo_dispatch_answer** answer) { return hlo_dispatch_wait(asked, answer); });
}

constexpr char kRawCall[] = "hlo_dispatch raw call";

void FreeRawCall(PyObject* capsule) {
  hlo_dispatch_raw_call_free(static_cast<hlo_dispatch_raw_call*>(PyCapsule_GetPointer(capsule, kRawCall)));
}

Owned MakeRawCall(PyObject* arguments) {
  const char* target = nullptr;
  PyObject *attributes = nullptr, *buffers = nullptr;
  if (!PyArg_ParseTuple(arguments, "sO!O!", &target, &PyDict_Type, &attributes, &PyList_Type, &buffers)) {
    throw PythonError();
  }
  std::vector<void*> addresses;
  std::vector<int64_t> sizes;
  for (Py_ssize_t i = 0; i < PyList_Size(buffers); ++i) {
    unsigned long long address = 0;
    long long bytes = 0;
    if (!PyArg_ParseTuple(PyList_GetItem(buffers, i), "KL", &address, &bytes)) throw PythonError();
    addresses.push_back(reinterpret_cast<void*>(static_cast<uintptr_t>(address)));
    sizes.push_back(bytes);
  }
  const OwnedAttributes stored = StoreDictionary(attributes);
  hlo_dispatch_raw_call* call = nullptr;
  Check([&] {
    WithoutLock without_lock;
    return hlo_dispatch_raw_call_new(target, stored.get(), addresses.data(), sizes.data(), addresses.size(), &call);
  }());
  PyObject* capsule = PyCapsule_New(call, kRawCall, FreeRawCall);
  if (capsule == nullptr) hlo_dispatch_raw_call_free(call);
  return Checked(capsule);
}

Owned RunRawCall(PyObject* arguments) {
  PyObject* capsule = nullptr;
  long long count = 0;
  if (!PyArg_ParseTuple(arguments, "OL", &capsule, &count)) throw PythonError();
  auto* call = static_cast<hlo_dispatch_raw_call*>(PyCapsule_GetPointer(capsule, kRawCall));
  if (call == nullptr) throw PythonError();
  Check([&] {
    WithoutLock without_lock;
    return hlo_dispatch_raw_call_run(call, count);
  }());
  return Checked(PyBool_FromLong(1));
}

Owned Finish(PyObject*) {
  {
    WithoutLock without_lock;
    hlo_dispatch_finish();
  }
  return Checked(PyBool_FromLong(1));
}

Owned Capsule(const void* address) { return Checked(PyCapsule_New(const_cast<void*>(address), nullptr, nullptr)); }

Owned HandlerCapsule(hlo_dispatch_handler handler) { return Capsule(reinterpret_cast<const void*>(handler)); }

Owned StageCapsules(const hlo_dispatch_kernel& kernel) {
  return Checked(Py_BuildValue("{sNsN}", "instantiate", HandlerCapsule(kernel.instantiate).release(), "execute",
                               HandlerCapsule(kernel.execute).release()));
}

Owned TypeCapsules(const hlo_dispatch_state_type& type) {
  return Checked(
      Py_BuildValue("{sNsN}", "type_id", Capsule(type.id).release(), "type_info", Capsule(type.info).release()));
}

void SetItem(const Owned& dictionary, const char* name, const Owned& value) {
  if (PyDict_SetItemString(dictionary.get(), name, value.get()) != 0) throw PythonError();
}

Owned Registrations(PyObject*) {
  Owned types = Checked(PyDict_New());
  for (size_t i = 0; i < hlo_dispatch_state_type_count(); ++i) {
    const hlo_dispatch_state_type& type = *hlo_dispatch_state_type_at(i);
    SetItem(types, type.name, TypeCapsules(type));
  }
  Owned targets = Checked(PyDict_New());
  for (size_t i = 0; i < hlo_dispatch_kernel_count(); ++i) {
    const hlo_dispatch_kernel& kernel = *hlo_dispatch_kernel_at(i);
    SetItem(targets, kernel.target, StageCapsules(kernel));
  }
  return Checked(Py_BuildValue("{sNsN}", "types", types.release(), "targets", targets.release()));
}

// What Python reads of a kernel: hlo_dispatch/vendor/registry.py has the names.
Owned Describe(const hlo_dispatch_kernel& kernel) {
  Py_ssize_t count = 0;
  while (kernel.routines[count] != nullptr) ++count;
  Owned routines = Checked(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Owned routine = Checked(PyUnicode_FromString(kernel.routines[i]));
    if (PyTuple_SetItem(routines.get(), i, routine.release()) != 0) throw PythonError();
  }
  return Checked(Py_BuildValue("{sssssssssOsssssNsOsO}", "name", kernel.name, "target", kernel.target, "library",
                               kernel.library, "instructions", kernel.instructions, "runs_alone",
                               kernel.runs_alone != 0 ? Py_True : Py_False, "packed_by", kernel.packed_by, "joined_by",
                               kernel.joined_by, "routines", routines.release(), "only_copies",
                               kernel.only_copies != 0 ? Py_True : Py_False, "may_write_over_source",
                               kernel.may_write_over_source != 0 ? Py_True : Py_False));
}

Owned Registry(PyObject*) {
  Owned kernels = Checked(PyList_New(0));
  for (size_t i = 0; i < hlo_dispatch_kernel_count(); ++i) {
    if (PyList_Append(kernels.get(), Describe(*hlo_dispatch_kernel_at(i)).get()) != 0) throw PythonError();
  }
  return Checked(Py_BuildValue("{sLsssN}", "abi", static_cast<long long>(hlo_dispatch_abi()), "own_version",
                               hlo_dispatch_own_version(), "kernels", kernels.release()));
}

Owned NanosecondsAtPeak(PyObject* arguments) {
  int threads = 0;
  long long rounds = 0, nanoseconds = 0;
  if (!PyArg_ParseTuple(arguments, "iL", &threads, &rounds)) throw PythonError();
  {
    WithoutLock without_lock;
    nanoseconds = hlo_dispatch_nanoseconds_at_peak(threads, rounds);
  }
  return Checked(PyLong_FromLongLong(nanoseconds));
}

Owned LibraryPath(PyObject*) { return Checked(PyUnicode_DecodeFSDefault(hlo_dispatch_library_path())); }

PyMethodDef methods[] = {
    {"load_onednn", Python<LoadOnednn>, METH_VARARGS,
     "load_onednn(path, bind threads) -> (version, runtime, note): opens oneDNN for this process."},
    {"keep_signals", Python<KeepSignals>, METH_NOARGS,
     "keep_signals() -> object: when it goes, signal handlers that libraries loaded meanwhile took over are put back."},
    {"load_with", Python<LoadWith>, METH_O,
     "load_with(function): function(name of a library) loads it and returns why not, or ''; called when an executable "
     "first needs it. The first function given stays."},
    {"load_svml", Python<LoadSvml>, METH_O,
     "load_svml(path) -> (version, runtime): opens SVML for this process; its functions of vectors can be called "
     "then."},
    {"load_onemkl", Python<LoadOnemkl>, METH_O,
     "load_onemkl(path) -> (version, runtime): opens oneMKL for this process; its BLAS and LAPACK can be called then."},
    {"offer_scipy", Python<OfferScipy>, METH_VARARGS,
     "offer_scipy({routine: address}, version): the BLAS and LAPACK that JAX calls are there to be called."},
    {"plan", Python<Plan>, METH_VARARGS,
     "plan(target, attributes) -> (implementation, scratch bytes, whether the weights are reordered in every call, "
     "bytes of packed weights, their layout)"},
    {"ask", Python<Ask>, METH_VARARGS,
     "ask(target, attributes) -> number: the same question, worked on while the caller goes on"},
    {"wait", Python<WaitForAnswer>, METH_O,
     "wait(number) -> what plan would have returned or raised; once for each number"},
    {"raw_call", Python<MakeRawCall>, METH_VARARGS,
     "raw_call(target, attributes, buffers) -> the call on these operands, without XLA."},
    {"run_raw", Python<RunRawCall>, METH_VARARGS,
     "run_raw(call, count): runs a raw call so often; not from two threads at once."},
    {"finish", Python<Finish>, METH_NOARGS,
     "finish(): drops unanswered questions and waits for those being worked on."},
    {"registrations", Python<Registrations>, METH_NOARGS,
     "registrations() -> {'types': ..., 'targets': ...}: capsules for jax.ffi, types to be registered first."},
    {"registry", Python<Registry>, METH_NOARGS,
     "registry() -> {'abi': ..., 'own_version': ..., 'kernels': [...]}: what there is to be called; loads nothing."},
    {"nanoseconds_at_peak", Python<NanosecondsAtPeak>, METH_VARARGS,
     "nanoseconds_at_peak(threads, rounds) -> processor time of the slowest of them for so many rounds of arithmetic "
     "at "
     "the peak of the vector units; 0 where they could not run at the same time."},
    {"instruction_digest_input", Python<InstructionDigestInput>, METH_VARARGS,
     "instruction_digest_input(serialized, {computation: digest}, plain opcodes, is_large) -> bytes"},
    {"instruction_index", Python<InstructionIndex>, METH_VARARGS,
     "instruction_index(serialized, {computation: digest}, plain opcodes, is_large) -> by ids: ({id: digest input}, "
     "{id: operands}, {id: users})"},
    {"computation_digest_input", Python<ComputationDigestInput>, METH_VARARGS,
     "computation_digest_input(serialized, {computation: digest}, plain opcodes, is_large) -> bytes"},
    {"flat_graph", Python<FlatGraph>, METH_VARARGS,
     "flat_graph(serialized, instructions, called, shape_of, rearranged, node class, fields, layouts, inserted copy) "
     "-> "
     "(nodes, value_of, instruction_of, members, narrow_of, root, shapes)"},
    {"opcodes_and_names", Python<OpcodesAndNames>, METH_O,
     "opcodes_and_names(serialized) -> (opcodes, names): id of a computation -> its opcodes, all names."},
    {"grow_region", Python<GrowRegion>, METH_VARARGS,
     "grow_region(entry, is_owned, is_materialized, scalar_constant, opcodes, types, float types, most nodes, most "
     "exits) -> (nodes, exits, constants)"},
    {"region_structure", Python<RegionStructure>, METH_VARARGS,
     "region_structure(entry, nodes, scalar_constant) -> a key of the function that they compute"},
    {"leaf_check", Python<LeafCheck>, METH_VARARGS,
     "leaf_check(positional, named, types, is_deleted, flatten) -> what checked_leaves compares arguments with."},
    {"checked_leaves", Python<CheckedLeaves>, METH_VARARGS,
     "checked_leaves(check, args, kwargs) -> the list of their leaves, or None where they are others."},
    {"other_leaves", Python<OtherLeaves>, METH_VARARGS,
     "other_leaves(check, args, kwargs) -> the list of the leaves that may be any object, or None likewise."},
    {"library_path", Python<LibraryPath>, METH_NOARGS,
     "library_path() -> the file of the library that all of this is in."},
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
