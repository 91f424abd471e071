#include "python/flat_graph_nodes.h"

namespace hlo_dispatch::python {
namespace {

// Names of attributes, which the class of nodes has as slots.
struct Names {
  Owned index = Name("index"), opcode = Name("opcode"), shape = Name("shape"), operands = Name("operands"),
        users = Name("users"), proto = Name("proto"), producers = Name("producers"),
        top_level_id = Name("top_level_id"), is_live_out = Name("is_live_out"),
        has_control_predecessors = Name("has_control_predecessors"), scalar = Name("scalar");

  static Owned Name(const char* text) { return Checked(PyUnicode_InternFromString(text)); }
};

void Set(PyObject* node, const Owned& name, PyObject* value) {
  if (PyObject_SetAttr(node, name.get(), value) != 0) throw PythonError();
}

Owned Integer(int64_t value) { return Checked(PyLong_FromLongLong(value)); }

void SetAttributes(PyObject* node, const Names& names, const Value& value, const Shapes& shapes) {
  Set(node, names.opcode, value.opcode->name);
  Set(node, names.shape, shapes.Shape(value.shape));
  Set(node, names.proto, value.proto);
  Set(node, names.scalar, value.may_be_scalar ? Py_False : Py_None);
  Set(node, names.has_control_predecessors, value.waits ? Py_True : Py_False);
  Owned producers = Checked(PyList_New(static_cast<Py_ssize_t>(value.producers.size())));
  for (size_t place = 0; place < value.producers.size(); ++place) {
    PyList_SetItem(producers.get(), static_cast<Py_ssize_t>(place), Integer(value.producers[place]).release());
  }
  Set(node, names.producers, producers.get());
  Set(node, names.top_level_id, value.is_top_level ? Integer(value.top_level).get() : Py_None);
}

}  // namespace

Nodes::Nodes(const std::vector<Value>& values, const Shapes& shapes, int root, PyObject* node_class)
    : nodes_(Checked(PyList_New(static_cast<Py_ssize_t>(values.size())))) {
  const Names names;
  auto* type = reinterpret_cast<PyTypeObject*>(node_class);
  for (size_t number = 0; number < values.size(); ++number) {
    Owned node = Checked(PyType_GenericAlloc(type, 0));
    Set(node.get(), names.index, Integer(static_cast<int64_t>(number)).get());
    Set(node.get(), names.is_live_out, static_cast<int>(number) == root ? Py_True : Py_False);
    SetAttributes(node.get(), names, values[number], shapes);
    PyList_SetItem(nodes_.get(), static_cast<Py_ssize_t>(number), node.release());
  }
  for (size_t number = 0; number < values.size(); ++number) {
    const std::vector<int>& operands = values[number].operands;
    Owned tuple = Checked(PyTuple_New(static_cast<Py_ssize_t>(operands.size())));
    for (size_t place = 0; place < operands.size(); ++place) {
      PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(place), Py_NewRef(At(operands[place])));
    }
    PyObject* node = At(static_cast<int>(number));
    Set(node, names.operands, tuple.get());
    Set(node, names.users, List(values[number].users).get());
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
