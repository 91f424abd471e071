#include "python/elementwise_region.h"

#include <cstddef>
#include <functional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/messages.h"

namespace hlo_dispatch::python {
namespace {

// Names of attributes of nodes, shapes and messages; made once, under Python's lock.
struct Names {
  PyObject *index = Name("index"), *opcode = Name("opcode"), *shape = Name("shape"), *operands = Name("operands"),
           *users = Name("users"), *scalar = Name("scalar"), *proto = Name("proto"),
           *element_type = Name("element_type"), *elements = Name("elements"), *strides = Name("strides"),
           *direction = Name("comparison_direction"), *members = Name("members"), *asked = Name("asked");

  static PyObject* Name(const char* text) { return Checked(PyUnicode_InternFromString(text)).release(); }
};

const Names& Attribute() {
  static const Names names;
  return names;
}

Owned Get(PyObject* object, PyObject* name) { return Checked(PyObject_GetAttr(object, name)); }

bool Holds(int answer) {
  if (answer < 0) throw PythonError();
  return answer == 1;
}

bool IsEqual(PyObject* one, PyObject* other) { return Holds(PyObject_RichCompareBool(one, other, Py_EQ)); }

// A predicate of nodes: a Python function, or membership in a set, which is looked up here and noted as asked.
class Predicate {
 public:
  explicit Predicate(PyObject* function) : function_(function) {
    if (PyObject_HasAttr(function, Attribute().members) == 0) return;
    members_ = Get(function, Attribute().members);
    asked_ = Get(function, Attribute().asked);
  }

  bool operator()(PyObject* node) const {
    if (members_ == nullptr) {
      return Holds(PyObject_IsTrue(Checked(PyObject_CallFunctionObjArgs(function_, node, nullptr)).get()));
    }
    if (PySet_Add(asked_.get(), node) != 0) throw PythonError();
    return Holds(PySet_Contains(members_.get(), node));
  }

 private:
  PyObject* function_;
  Owned members_, asked_;
};

// The scalar constant of a node, or None: most are known already.
Owned Scalar(PyObject* node, PyObject* scalar_constant) {
  Owned known = Get(node, Attribute().scalar);
  return known.get() != Py_False ? std::move(known)
                                 : Checked(PyObject_CallFunctionObjArgs(scalar_constant, node, nullptr));
}

struct Settings {
  PyObject *entry = nullptr, *is_owned = nullptr, *is_materialized = nullptr, *scalar_constant = nullptr;
  PyObject *opcodes = nullptr, *types = nullptr, *float_types = nullptr;
  Py_ssize_t most_nodes = 0, most_exits = 0;
};

// Nodes are borrowed from the graph.
class Growing {
 public:
  explicit Growing(const Settings& settings)
      : settings_(settings),
        is_owned_(settings.is_owned),
        is_materialized_(settings.is_materialized),
        shape_(Get(settings.entry, Attribute().shape)),
        elements_(Get(shape_.get(), Attribute().elements)) {}

  void Run() {
    inside_.insert(settings_.entry);
    AddUsers(settings_.entry);
    while (!queue_.empty() && Size(nodes_) < settings_.most_nodes && Size(exits_) < settings_.most_exits) {
      PyObject* node = queue_.top().second;
      queue_.pop();
      if (is_owned_(node) || !Include(node)) break;
    }
  }

  Owned ToPython() const {
    const size_t count = exits_.empty() ? 0 : exits_.back() + 1;
    Owned nodes = Checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (size_t place = 0; place < count; ++place) {
      PyTuple_SetItem(nodes.get(), static_cast<Py_ssize_t>(place), Py_NewRef(nodes_[place]));
    }
    Owned exits = Checked(PyTuple_New(Size(exits_)));
    for (size_t place = 0; place < exits_.size(); ++place) {
      PyTuple_SetItem(exits.get(), static_cast<Py_ssize_t>(place), Checked(PyLong_FromSize_t(exits_[place])).release());
    }
    return Checked(Py_BuildValue("(NNO)", nodes.release(), exits.release(), constants_.get()));
  }

 private:
  template <typename Values>
  static Py_ssize_t Size(const Values& values) {
    return static_cast<Py_ssize_t>(values.size());
  }

  // Notes how often a value of the region is used, and queues its users.
  void AddUsers(PyObject* node) {
    const Owned users = Get(node, Attribute().users);
    const Py_ssize_t count = PyList_Size(users.get());
    // Materialization is a use that no node of the region closes.
    open_uses_[node] = count + (is_materialized_(node) ? 1 : 0);
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* user = PyList_GetItem(users.get(), i);
      if (!queued_.insert(user).second) continue;
      const long long index = PyLong_AsLongLong(Get(user, Attribute().index).get());
      if (index == -1 && PyErr_Occurred() != nullptr) throw PythonError();
      queue_.emplace(index, user);
    }
  }

  // Whether the node belongs to the region; adds it then.
  bool Include(PyObject* node) {
    const Owned opcode = Get(node, Attribute().opcode), shape = Get(node, Attribute().shape);
    if (!Holds(PySet_Contains(settings_.opcodes, opcode.get()))) return false;
    const Owned type = Get(shape.get(), Attribute().element_type);
    if (!Holds(PySet_Contains(settings_.types, type.get()))) return false;
    if (!IsEqual(Get(shape.get(), Attribute().elements).get(), elements_.get())) return false;
    const Owned operands = Get(node, Attribute().operands);
    if (!AddConstants(operands.get(), shape.get(), Text(opcode.get()) == "bitcast")) return false;
    inside_.insert(node);
    nodes_.push_back(node);
    CloseUses(operands.get());
    AddUsers(node);
    if (open_uses_.size() == 1 && open_uses_.count(node) == 1 &&
        Holds(PySet_Contains(settings_.float_types, type.get()))) {
      exits_.push_back(nodes_.size() - 1);
    }
    return true;
  }

  // Whether each operand is in the region or a scalar constant; adds the constants then.
  bool AddConstants(PyObject* operands, PyObject* shape, bool is_bitcast) {
    std::vector<Owned> found;
    for (Py_ssize_t i = 0; i < PyTuple_Size(operands); ++i) {
      PyObject* operand = PyTuple_GetItem(operands, i);
      if (inside_.count(operand) == 1) {
        // Elements must keep their memory order: only a bitcast may change their indices.
        if (!is_bitcast && !HasStridesOf(operand, shape)) return false;
        continue;
      }
      found.push_back(Scalar(operand, settings_.scalar_constant));
      if (found.back().get() == Py_None) return false;
    }
    for (const Owned& constant : found) {
      if (PyList_Append(constants_.get(), constant.get()) != 0) throw PythonError();
    }
    return true;
  }

  static bool HasStridesOf(PyObject* node, PyObject* shape) {
    const Owned own = Get(node, Attribute().shape);
    return own.get() == shape ||
           IsEqual(Get(own.get(), Attribute().strides).get(), Get(shape, Attribute().strides).get());
  }

  void CloseUses(PyObject* operands) {
    std::unordered_set<PyObject*> seen;
    for (Py_ssize_t i = 0; i < PyTuple_Size(operands); ++i) {
      PyObject* operand = PyTuple_GetItem(operands, i);
      const auto use = open_uses_.find(operand);
      if (use == open_uses_.end() || !seen.insert(operand).second) continue;
      if (--use->second == 0) open_uses_.erase(use);
    }
  }

  using Indexed = std::pair<long long, PyObject*>;

  const Settings& settings_;
  const Predicate is_owned_, is_materialized_;
  Owned shape_, elements_, constants_ = Checked(PyList_New(0));
  std::vector<PyObject*> nodes_;
  std::vector<size_t> exits_;
  std::unordered_set<PyObject*> inside_, queued_;
  std::unordered_map<PyObject*, Py_ssize_t> open_uses_;
  std::priority_queue<Indexed, std::vector<Indexed>, std::greater<>> queue_;
};

// (opcode, element type, comparison direction, operands): a position in a tuple of its own, or a constant.
Owned Structure(PyObject* node, const std::unordered_map<PyObject*, Py_ssize_t>& places, PyObject* scalar_constant) {
  const Owned operands = Get(node, Attribute().operands), opcode = Get(node, Attribute().opcode);
  Owned described = Checked(PyTuple_New(PyTuple_Size(operands.get())));
  for (Py_ssize_t i = 0; i < PyTuple_Size(operands.get()); ++i) {
    PyObject* operand = PyTuple_GetItem(operands.get(), i);
    const auto place = places.find(operand);
    PyTuple_SetItem(described.get(), i,
                    place != places.end() ? Checked(Py_BuildValue("(n)", place->second)).release()
                                          : Scalar(operand, scalar_constant).release());
  }
  Owned direction = Text(opcode.get()) == "compare" ? Get(Get(node, Attribute().proto).get(), Attribute().direction)
                                                    : Checked(PyUnicode_FromString(""));
  return Checked(Py_BuildValue("(ONNN)", opcode.get(),
                               Get(Get(node, Attribute().shape).get(), Attribute().element_type).release(),
                               direction.release(), described.release()));
}

}  // namespace

Owned GrowRegion(PyObject* arguments) {
  Settings settings;
  if (!PyArg_ParseTuple(arguments, "OOOOOOOnn", &settings.entry, &settings.is_owned, &settings.is_materialized,
                        &settings.scalar_constant, &settings.opcodes, &settings.types, &settings.float_types,
                        &settings.most_nodes, &settings.most_exits)) {
    throw PythonError();
  }
  Growing growing(settings);
  growing.Run();
  return growing.ToPython();
}

Owned RegionStructure(PyObject* arguments) {
  PyObject *entry = nullptr, *nodes = nullptr, *scalar_constant = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO!O", &entry, &PyTuple_Type, &nodes, &scalar_constant)) throw PythonError();
  std::unordered_map<PyObject*, Py_ssize_t> places{{entry, -1}};
  for (Py_ssize_t i = 0; i < PyTuple_Size(nodes); ++i) places[PyTuple_GetItem(nodes, i)] = i;
  Owned structure = Checked(PyTuple_New(PyTuple_Size(nodes)));
  for (Py_ssize_t i = 0; i < PyTuple_Size(nodes); ++i) {
    PyTuple_SetItem(structure.get(), i, Structure(PyTuple_GetItem(nodes, i), places, scalar_constant).release());
  }
  return structure;
}

}  // namespace hlo_dispatch::python
