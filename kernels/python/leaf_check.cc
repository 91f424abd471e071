#include "python/leaf_check.h"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace hlo_dispatch::python {
namespace {

constexpr char kLeafCheck[] = "hlo_dispatch leaf check";

// Objects are compared with addresses that are never read: whoever calls knows whether those objects live.
class Node {
 public:
  enum class Kind { kLeaf, kStatic, kNone, kList, kTuple, kDict };

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

  // Whether an object is what is described; stores its leaves, borrowed.
  bool Find(PyObject* object, const std::vector<PyTypeObject*>& types, std::vector<PyObject*>* leaves,
            std::vector<PyObject*>* expected) const {
    switch (kind_) {
      case Kind::kLeaf:
        if (expected_ != nullptr) {
          if (object != expected_) return false;
          expected->push_back(object);
        } else if (!IsOneOf(types, Py_TYPE(object))) {
          return false;
        }
        leaves->at(static_cast<size_t>(number_)) = object;
        return true;
      case Kind::kStatic:
        return object == expected_;
      case Kind::kNone:
        return object == Py_None;
      case Kind::kList:
        return Py_TYPE(object) == &PyList_Type && FindAll<PyList_Size, PyList_GetItem>(object, types, leaves, expected);
      case Kind::kTuple:
        return Py_TYPE(object) == &PyTuple_Type &&
               FindAll<PyTuple_Size, PyTuple_GetItem>(object, types, leaves, expected);
      case Kind::kDict:
        return Py_TYPE(object) == &PyDict_Type && FindInDict(object, types, leaves, expected);
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

  template <Py_ssize_t (*size)(PyObject*), PyObject* (*get)(PyObject*, Py_ssize_t)>
  bool FindAll(PyObject* object, const std::vector<PyTypeObject*>& types, std::vector<PyObject*>* leaves,
               std::vector<PyObject*>* expected) const {
    const Py_ssize_t count = size(object);
    if (count != static_cast<Py_ssize_t>(children_.size())) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!children_[static_cast<size_t>(i)].Find(get(object, i), types, leaves, expected)) return false;
    }
    return true;
  }

  bool FindInDict(PyObject* object, const std::vector<PyTypeObject*>& types, std::vector<PyObject*>* leaves,
                  std::vector<PyObject*>* expected) const {
    if (PyDict_Size(object) != static_cast<Py_ssize_t>(children_.size())) return false;
    for (size_t i = 0; i < children_.size(); ++i) {
      PyObject* value = PyDict_GetItemWithError(object, keys_[i].get());
      if (value == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
      if (value == nullptr || !children_[i].Find(value, types, leaves, expected)) return false;
    }
    return true;
  }

  Kind kind_ = Kind::kNone;
  Py_ssize_t number_ = 0;
  const PyObject* expected_ = nullptr;
  std::vector<Owned> keys_;
  std::vector<Node> children_;
};

struct Checker {
  Node positional, named;
  std::vector<PyTypeObject*> types;
  Owned held_types, is_deleted;
  size_t count;
};

Checker* CheckerOf(PyObject* capsule) {
  void* pointer = PyCapsule_GetPointer(capsule, kLeafCheck);
  if (pointer == nullptr) throw PythonError();
  return static_cast<Checker*>(pointer);
}

void Free(PyObject* capsule) { delete static_cast<Checker*>(PyCapsule_GetPointer(capsule, kLeafCheck)); }

// A list of objects; none of them goes while it is made.
Owned List(const std::vector<PyObject*>& objects) {
  Owned list = Checked(PyList_New(static_cast<Py_ssize_t>(objects.size())));
  for (size_t i = 0; i < objects.size(); ++i) {
    PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(objects[i]));
  }
  return list;
}

}  // namespace

Owned LeafCheck(PyObject* arguments) {
  PyObject *positional = nullptr, *named = nullptr, *types = nullptr, *is_deleted = nullptr;
  if (!PyArg_ParseTuple(arguments, "OOO!O", &positional, &named, &PyTuple_Type, &types, &is_deleted)) {
    throw PythonError();
  }
  std::unique_ptr<Checker> made(
      new Checker{Node(positional), Node(named), {}, Owned(Py_NewRef(types)), Owned(Py_NewRef(is_deleted)), 0});
  for (Py_ssize_t i = 0; i < PyTuple_Size(types); ++i) {
    made->types.push_back(reinterpret_cast<PyTypeObject*>(PyTuple_GetItem(types, i)));
  }
  made->count = made->positional.CountLeaves() + made->named.CountLeaves();
  Owned capsule = Checked(PyCapsule_New(made.get(), kLeafCheck, Free));
  made.release();
  return capsule;
}

Owned CheckedLeaves(PyObject* arguments) {
  PyObject *capsule = nullptr, *positional = nullptr, *named = nullptr;
  if (!PyArg_ParseTuple(arguments, "OOO", &capsule, &positional, &named)) throw PythonError();
  const Checker& checker = *CheckerOf(capsule);
  std::vector<PyObject*> leaves(checker.count), expected;
  expected.reserve(checker.count);
  if (!checker.positional.Find(positional, checker.types, &leaves, &expected) ||
      !checker.named.Find(named, checker.types, &leaves, &expected)) {
    return Owned(Py_NewRef(Py_None));
  }
  // Other code may run from here on, and drop what the arguments hold.
  Owned list = List(leaves);
  for (PyObject* leaf : expected) {
    const Owned deleted = Checked(PyObject_CallFunctionObjArgs(checker.is_deleted.get(), leaf, nullptr));
    if (deleted.get() != Py_False) return Owned(Py_NewRef(Py_None));
  }
  return list;
}

}  // namespace hlo_dispatch::python
