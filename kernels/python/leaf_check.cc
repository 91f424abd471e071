#include "python/leaf_check.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace hlo_dispatch::python {
namespace {

constexpr char kLeafCheck[] = "hlo_dispatch leaf check";
// Leaves that a call asks whether they are deleted, besides those that it passes on.
constexpr size_t kAskedInACall = 32;

// What a walk has found: references, since a registered node's flattening may drop what the arguments hold.
struct Found {
  std::vector<Owned> leaves;
  // Those of the leaves that have to be certain objects, and whether they are among the leaves above.
  std::vector<Owned> expected;
  bool lists_expected = true;
  // Of these, the ones that are more than compared by address: hundreds of weights, which nobody has read since the
  // last call, are some cache misses each.
  size_t first = 0, last = std::numeric_limits<size_t>::max();
  size_t compared = 0;
};

struct Leaves {
  std::vector<PyTypeObject*> types;
  Owned is_deleted, flatten;
};

// Objects are compared with addresses: whoever calls knows whether those objects live.
class Node {
 public:
  enum class Kind { kLeaf, kStatic, kNone, kList, kTuple, kDict, kRegistered };

  explicit Node(PyObject* description) {
    PyObject* kind = Item(description, 0);
    const char* text = PyUnicode_AsUTF8AndSize(kind, nullptr);
    if (text == nullptr) throw PythonError();
    const std::string_view name(text);
    if (name == "leaf") {
      kind_ = Kind::kLeaf;
      number_ = PyLong_AsSsize_t(Item(description, 1));
      expected_ = Address(Item(description, 2));
    } else if (name == "static") {
      kind_ = Kind::kStatic;
      expected_ = Address(Item(description, 1));
    } else if (name == "dict") {
      kind_ = Kind::kDict;
      PyObject* keys = Item(description, 1);
      for (Py_ssize_t i = 0; i < PyTuple_Size(keys); ++i) keys_.emplace_back(Py_NewRef(Item(keys, i)));
      AddChildren(Item(description, 2));
      if (keys_.size() != children_.size()) throw std::runtime_error("a dict has as many keys as values");
    } else if (name == "registered") {
      kind_ = Kind::kRegistered;
      type_ = Address(Item(description, 1));
      expected_ = Address(Item(description, 2));
      AddChildren(Item(description, 3));
    } else if (name == "list" || name == "tuple") {
      kind_ = name == "list" ? Kind::kList : Kind::kTuple;
      AddChildren(Item(description, 1));
    } else if (name != "none") {
      throw std::runtime_error("unknown kind of node");
    }
    if (PyErr_Occurred() != nullptr) throw PythonError();
  }

  // The number of leaves, each of which has another of the numbers below it.
  size_t CountLeaves() const {
    size_t count = kind_ == Kind::kLeaf ? 1 : 0;
    for (const Node& child : children_) count += child.CountLeaves();
    return count;
  }

  // Whether an object is what is described; stores its leaves.
  bool Find(PyObject* object, const Leaves& known, Found* found) const {
    switch (kind_) {
      case Kind::kLeaf:
        if (expected_ != nullptr) {
          if (object != expected_) return false;
          const size_t place = found->compared++;
          if (place < found->first || place >= found->last) return true;
          found->expected.emplace_back(Py_NewRef(object));
          if (!found->lists_expected) return true;
        } else if (!IsOneOf(known.types, Py_TYPE(object))) {
          return false;
        }
        found->leaves.at(static_cast<size_t>(number_)).reset(Py_NewRef(object));
        return true;
      case Kind::kStatic:
        return object == expected_;
      case Kind::kNone:
        return object == Py_None;
      case Kind::kList:
        return Py_TYPE(object) == &PyList_Type && FindAll<PyList_Size, PyList_GetItem>(object, known, found);
      case Kind::kTuple:
        return Py_TYPE(object) == &PyTuple_Type && FindAll<PyTuple_Size, PyTuple_GetItem>(object, known, found);
      case Kind::kDict:
        return Py_TYPE(object) == &PyDict_Type && FindInDict(object, known, found);
      case Kind::kRegistered:
        return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type_ && FindInRegistered(object, known, found);
    }
    return false;
  }

 private:
  static PyObject* Item(PyObject* tuple, Py_ssize_t place) {
    PyObject* item = PyTuple_GetItem(tuple, place);
    if (item == nullptr) throw PythonError();
    return item;
  }

  static PyObject* Address(PyObject* number) { return static_cast<PyObject*>(PyLong_AsVoidPtr(number)); }

  static bool IsOneOf(const std::vector<PyTypeObject*>& types, PyTypeObject* type) {
    for (const PyTypeObject* known : types) {
      if (known == type) return true;
    }
    return false;
  }

  void AddChildren(PyObject* descriptions) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(descriptions); ++i) children_.emplace_back(Item(descriptions, i));
  }

  // The same of a borrowed reference, which a registered node's own code may drop.
  bool FindHeld(PyObject* object, const Leaves& known, Found* found) const {
    if (kind_ == Kind::kLeaf && expected_ != nullptr) return Find(object, known, found);
    const Owned held(Py_NewRef(object));
    return Find(object, known, found);
  }

  template <Py_ssize_t (*size)(PyObject*), PyObject* (*get)(PyObject*, Py_ssize_t)>
  bool FindAll(PyObject* object, const Leaves& known, Found* found) const {
    if (size(object) != static_cast<Py_ssize_t>(children_.size())) return false;
    for (size_t i = 0; i < children_.size(); ++i) {
      PyObject* item = get(object, static_cast<Py_ssize_t>(i));
      if (item == nullptr) throw PythonError();  // a list that became shorter meanwhile
      if (!children_[i].FindHeld(item, known, found)) return false;
    }
    return true;
  }

  bool FindInDict(PyObject* object, const Leaves& known, Found* found) const {
    if (PyDict_Size(object) != static_cast<Py_ssize_t>(children_.size())) return false;
    for (size_t i = 0; i < children_.size(); ++i) {
      PyObject* value = PyDict_GetItemWithError(object, keys_[i].get());
      if (value == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
      if (value == nullptr) return false;
      if (!children_[i].FindHeld(value, known, found)) return false;
    }
    return true;
  }

  // Flattens the node as JAX does, and compares its metadata as JAX does.
  bool FindInRegistered(PyObject* object, const Leaves& known, Found* found) const {
    const Owned flat = Checked(PyObject_CallFunctionObjArgs(known.flatten.get(), object, nullptr));
    if (PyTuple_Check(flat.get()) == 0 || PyTuple_Size(flat.get()) != 2) return false;
    const int is_other = PyObject_RichCompareBool(expected_, PyTuple_GetItem(flat.get(), 1), Py_NE);
    if (is_other < 0) throw PythonError();
    if (is_other != 0) return false;
    const Owned children = Checked(PySequence_Tuple(PyTuple_GetItem(flat.get(), 0)));
    return FindAll<PyTuple_Size, PyTuple_GetItem>(children.get(), known, found);
  }

  Kind kind_ = Kind::kNone;
  Py_ssize_t number_ = 0;
  PyObject* type_ = nullptr;
  PyObject* expected_ = nullptr;
  std::vector<Owned> keys_;
  std::vector<Node> children_;
};

struct Checker {
  Node positional, named;
  Leaves known;
  size_t count;
  // Place of the first leaf that the next call asks whether it is deleted; under Python's lock.
  size_t asked = 0;
};

Checker* CheckerOf(PyObject* capsule) {
  void* pointer = PyCapsule_GetPointer(capsule, kLeafCheck);
  if (pointer == nullptr) throw PythonError();
  return static_cast<Checker*>(pointer);
}

void Free(PyObject* capsule) { delete static_cast<Checker*>(PyCapsule_GetPointer(capsule, kLeafCheck)); }

// Whether the arguments are those that are described; false, too, where a node's own code raises.
bool IsFound(const Checker& checker, PyObject* positional, PyObject* named, Found* found) {
  try {
    return checker.positional.Find(positional, checker.known, found) && checker.named.Find(named, checker.known, found);
  } catch (const PythonError&) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw;  // KeyboardInterrupt
    PyErr_Clear();                                            // JAX raises it, too
    return false;
  }
}

}  // namespace

Owned LeafCheck(PyObject* arguments) {
  PyObject *positional = nullptr, *named = nullptr, *types = nullptr, *is_deleted = nullptr, *flatten = nullptr;
  if (!PyArg_ParseTuple(arguments, "OOO!OO", &positional, &named, &PyTuple_Type, &types, &is_deleted, &flatten)) {
    throw PythonError();
  }
  std::unique_ptr<Checker> made(
      new Checker{Node(positional), Node(named), {{}, Owned(Py_NewRef(is_deleted)), Owned(Py_NewRef(flatten))}, 0});
  for (Py_ssize_t i = 0; i < PyTuple_Size(types); ++i) {
    made->known.types.push_back(reinterpret_cast<PyTypeObject*>(PyTuple_GetItem(types, i)));
  }
  made->count = made->positional.CountLeaves() + made->named.CountLeaves();
  Owned capsule = Checked(PyCapsule_New(made.get(), kLeafCheck, Free));
  made.release();
  return capsule;
}

namespace {

// The arguments are those that are described, and none of the leaves that were looked at is deleted.
bool IsUsable(const Checker& checker, PyObject* positional, PyObject* named, Found* found) {
  found->leaves.resize(checker.count);
  if (!IsFound(checker, positional, named, found)) return false;
  for (const Owned& leaf : found->expected) {
    const Owned deleted = Checked(PyObject_CallFunctionObjArgs(checker.known.is_deleted.get(), leaf.get(), nullptr));
    if (deleted.get() != Py_False) return false;
  }
  return true;
}

Owned ListOf(const std::vector<Owned>& leaves) {
  Owned list = Checked(PyList_New(0));
  for (const Owned& leaf : leaves) {
    if (leaf != nullptr && PyList_Append(list.get(), leaf.get()) != 0) throw PythonError();
  }
  return list;
}

}  // namespace

Owned CheckedLeaves(PyObject* arguments) {
  PyObject *capsule = nullptr, *positional = nullptr, *named = nullptr;
  if (!PyArg_ParseTuple(arguments, "OOO", &capsule, &positional, &named)) throw PythonError();
  const Checker& checker = *CheckerOf(capsule);
  Found found;
  found.expected.reserve(checker.count);
  if (!IsUsable(checker, positional, named, &found)) return Owned(Py_NewRef(Py_None));
  return ListOf(found.leaves);
}

Owned OtherLeaves(PyObject* arguments) {
  PyObject *capsule = nullptr, *positional = nullptr, *named = nullptr;
  if (!PyArg_ParseTuple(arguments, "OOO", &capsule, &positional, &named)) throw PythonError();
  Checker& checker = *CheckerOf(capsule);
  Found found;
  found.lists_expected = false;
  found.first = checker.asked;
  found.last = checker.asked + kAskedInACall;
  checker.asked = found.last < checker.count ? found.last : 0;
  if (!IsUsable(checker, positional, named, &found)) return Owned(Py_NewRef(Py_None));
  return ListOf(found.leaves);
}

}  // namespace hlo_dispatch::python
