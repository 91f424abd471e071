// Nodes of the flat graph as Python objects.
#ifndef HLO_DISPATCH_PYTHON_FLAT_GRAPH_NODES_H_
#define HLO_DISPATCH_PYTHON_FLAT_GRAPH_NODES_H_

#include <cstdint>
#include <vector>

#include "python/opcodes_and_shapes.h"

namespace hlo_dispatch::python {

struct Value {
  const Opcode* opcode;
  int shape;
  std::vector<int> operands;
  PyObject* proto;
  bool waits;          // the instruction, for its control predecessors
  bool may_be_scalar;  // computed from constants alone, so that all elements may have one value known now
  std::vector<int> users;
  std::vector<int64_t> producers;  // ids of the top-level instructions that compute it
  bool is_top_level = false, is_live = false;
  int64_t top_level = 0;
};

inline void SetItem(const Owned& dictionary, const Owned& key, PyObject* value) {
  if (PyDict_SetItem(dictionary.get(), key.get(), value) != 0) throw PythonError();
}

class Nodes {
 public:
  // `root`: number of the value that is live out; `node_class`: a class with slots, which are set without a call of it.
  Nodes(const std::vector<Value>& values, const Shapes& shapes, int root, PyObject* node_class);

  PyObject* list() const { return nodes_.get(); }
  PyObject* At(int number) const { return PyList_GetItem(nodes_.get(), number); }
  Owned List(const std::vector<int>& numbers) const;

 private:
  Owned nodes_;
};

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_FLAT_GRAPH_NODES_H_
