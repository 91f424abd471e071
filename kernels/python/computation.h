// Serialized computations, instruction by instruction.
#ifndef HLO_DISPATCH_PYTHON_COMPUTATION_H_
#define HLO_DISPATCH_PYTHON_COMPUTATION_H_

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "python/messages.h"

namespace hlo_dispatch::python {

struct Instruction {
  int64_t id = 0, parameter = 0;
  std::string_view opcode, shape, message;
  std::vector<int64_t> operands, called;
  bool waits = false;  // for its control predecessors

  explicit Instruction(std::string_view serialized) : message(serialized) {
    WireReader reader(serialized);
    for (WireField field; reader.Next(&field);) {
      switch (field.number) {
        case instruction_field::kOpcode:
          opcode = field.bytes;
          break;
        case instruction_field::kShape:
          shape = field.bytes;
          break;
        case instruction_field::kParameterNumber:
          if (field.is_integer) parameter = static_cast<int64_t>(field.integer);
          break;
        case instruction_field::kId:
          if (field.is_integer) id = static_cast<int64_t>(field.integer);
          break;
        case instruction_field::kOperands:
          Append(field, &operands);
          break;
        case instruction_field::kControlPredecessors:
          waits = true;
          break;
        case instruction_field::kCalledComputations:
          Append(field, &called);
          break;
        default:
          break;
      }
    }
  }
};

// A serialized computation, and Python's messages of its instructions; a borrowed view of both.
struct Computation {
  std::vector<Instruction> instructions;
  int64_t root = 0;
  PyObject* protos = nullptr;

  Computation(std::string_view serialized, PyObject* list) : protos(list) {
    instructions.reserve(static_cast<size_t>(PyList_Size(list)));
    WireReader reader(serialized);
    for (WireField field; reader.Next(&field);) {
      if (field.number == computation_field::kRoot && field.is_integer) root = static_cast<int64_t>(field.integer);
      if (field.number == computation_field::kInstructions) instructions.emplace_back(field.bytes);
    }
    if (PyList_Size(list) != static_cast<Py_ssize_t>(instructions.size())) {
      throw std::runtime_error("these are the instructions of another computation");
    }
  }

  PyObject* Proto(size_t place) const { return PyList_GetItem(protos, static_cast<Py_ssize_t>(place)); }
};

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_COMPUTATION_H_
