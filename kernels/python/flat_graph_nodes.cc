#include "python/flat_graph_nodes.h"

namespace hlo_dispatch::python {
namespace {

// An attribute that the class of nodes has as a slot: found once, not by its name for each node.
class Slot {
 public:
  Slot(PyObject* node_class, const char* name)
      : descriptor_(Checked(PyObject_GetAttrString(node_class, name))),
        set_(reinterpret_cast<descrsetfunc>(PyType_GetSlot(Py_TYPE(descriptor_.get()), Py_tp_descr_set))) {
    if (set_ != nullptr) return;
    PyErr_Format(PyExc_TypeError, "%s is no slot of the nodes' class", name);
    throw PythonError();
  }

  void Set(PyObject* node, PyObject* value) const {
    if (set_(descriptor_.get(), node, value) != 0) throw PythonError();
  }

 private:
  Owned descriptor_;
  descrsetfunc set_;
};

struct Slots {
  explicit Slots(PyObject* of) : node_class(of) {}

  PyObject* node_class;
  Slot index{node_class, "index"}, opcode{node_class, "opcode"}, shape{node_class, "shape"},
      operands{node_class, "operands"}, users{node_class, "users"}, proto{node_class, "proto"},
      producers{node_class, "producers"}, top_level_id{node_class, "top_level_id"},
      is_live_out{node_class, "is_live_out"}, has_control_predecessors{node_class, "has_control_predecessors"},
      scalar{node_class, "scalar"};
};

Owned Integer(int64_t value) { return Checked(PyLong_FromLongLong(value)); }

void SetAttributes(PyObject* node, const Slots& slots, const Value& value, const Shapes& shapes) {
  slots.opcode.Set(node, value.opcode->name);
  slots.shape.Set(node, shapes.Shape(value.shape));
  slots.proto.Set(node, value.proto);
  slots.scalar.Set(node, value.may_be_scalar ? Py_False : Py_None);
  slots.has_control_predecessors.Set(node, value.waits ? Py_True : Py_False);
  Owned producers = Checked(PyList_New(static_cast<Py_ssize_t>(value.producers.size())));
  for (size_t place = 0; place < value.producers.size(); ++place) {
    PyList_SetItem(producers.get(), static_cast<Py_ssize_t>(place), Integer(value.producers[place]).release());
  }
  slots.producers.Set(node, producers.get());
  slots.top_level_id.Set(node, value.is_top_level ? Integer(value.top_level).get() : Py_None);
}

}  // namespace

Nodes::Nodes(const std::vector<Value>& values, const Shapes& shapes, int root, PyObject* node_class)
    : nodes_(Checked(PyList_New(static_cast<Py_ssize_t>(values.size())))) {
  const Slots slots(node_class);
  auto* type = reinterpret_cast<PyTypeObject*>(node_class);
  for (size_t number = 0; number < values.size(); ++number) {
    Owned node = Checked(PyType_GenericAlloc(type, 0));
    slots.index.Set(node.get(), Integer(static_cast<int64_t>(number)).get());
    slots.is_live_out.Set(node.get(), static_cast<int>(number) == root ? Py_True : Py_False);
    SetAttributes(node.get(), slots, values[number], shapes);
    PyList_SetItem(nodes_.get(), static_cast<Py_ssize_t>(number), node.release());
  }
  for (size_t number = 0; number < values.size(); ++number) {
    const std::vector<int>& operands = values[number].operands;
    Owned tuple = Checked(PyTuple_New(static_cast<Py_ssize_t>(operands.size())));
    for (size_t place = 0; place < operands.size(); ++place) {
      PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(place), Py_NewRef(At(operands[place])));
    }
    PyObject* node = At(static_cast<int>(number));
    slots.operands.Set(node, tuple.get());
    slots.users.Set(node, List(values[number].users).get());
  }
}

Owned Nodes::List(const std::vector<int>& numbers) const {
  Owned list = Checked(PyList_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t place = 0; place < numbers.size(); ++place) {
    PyList_SetItem(list.get(), static_cast<Py_ssize_t>(place), Py_NewRef(At(numbers[place])));
  }
  return list;
}

}  // namespace hlo_dispatch::python
