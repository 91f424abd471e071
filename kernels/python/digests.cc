#include "python/digests.h"

#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "python/messages.h"

namespace hlo_dispatch::python {
namespace {

// What decides about the digest's input of an instruction besides itself.
struct Settings {
  PyObject* digests = nullptr;   // id of a computation → its digest
  PyObject* plain = nullptr;     // opcodes of instructions that have nothing but a shape
  PyObject* is_large = nullptr;  // serialized shape of a constant → whether its elements do not count

  // The message, and these, from a Python call.
  std::string_view Read(PyObject* arguments) {
    PyObject* message = nullptr;
    if (!PyArg_ParseTuple(arguments, "SO!OO", &message, &PyDict_Type, &digests, &plain, &is_large)) {
      throw PythonError();
    }
    return View(message);
  }
};

// The instruction that was read last; its memory is used again for the next one.
struct Instruction {
  int64_t id = 0;
  std::string_view opcode, shape;
  std::vector<int64_t> operands, called;
  std::string meaning;  // without name and place

  void Read(std::string_view message) {
    id = 0;
    opcode = shape = {};
    operands.clear();
    called.clear();
    meaning.clear();
    WireReader fields(message);
    for (WireField field; fields.Next(&field);) {
      switch (field.number) {
        case instruction_field::kName:
        case instruction_field::kMetadata:
        case instruction_field::kControlPredecessors:
          continue;
        case instruction_field::kId:
          id = static_cast<int64_t>(field.integer);
          continue;
        case instruction_field::kOperands:
          Append(field, &operands);
          continue;
        case instruction_field::kCalledComputations:
          Append(field, &called);
          continue;
        case instruction_field::kOpcode:
          opcode = field.bytes;
          break;
        case instruction_field::kShape:
          shape = field.bytes;
          break;
        default:
          break;
      }
      meaning += field.whole;
    }
  }

  void AppendTo(std::string* input, const Settings& settings) const {
    if (HasOnlyAShape(settings)) {
      // The most frequent opcodes, and weights: the code does not depend on their values.
      input->append(opcode).append(shape);
      return;
    }
    *input += meaning;
    for (const int64_t computation : called) {
      const Owned key = Checked(PyLong_FromLongLong(computation));
      PyObject* digest = PyDict_GetItemWithError(settings.digests, key.get());
      if (digest == nullptr) throw std::runtime_error("a computation is called that is not before its caller");
      *input += View(digest);
    }
  }

 private:
  bool HasOnlyAShape(const Settings& settings) const {
    if (opcode == "constant") {
      const Owned large = Checked(PyObject_CallFunctionObjArgs(settings.is_large, Bytes(shape).get(), nullptr));
      const int is_large = PyObject_IsTrue(large.get());
      if (is_large < 0) throw PythonError();
      return is_large == 1;
    }
    const Owned name = Checked(PyUnicode_FromStringAndSize(opcode.data(), static_cast<Py_ssize_t>(opcode.size())));
    const int is_plain = PySet_Contains(settings.plain, name.get());
    if (is_plain < 0) throw PythonError();
    return is_plain == 1;
  }
};

class ComputationInput {
 public:
  explicit ComputationInput(const Settings& settings) : settings_(settings) {}

  std::string Of(std::string_view computation) {
    int64_t root = 0;
    WireReader fields(computation);
    for (WireField field; fields.Next(&field);) {
      if (field.number == computation_field::kRoot) root = static_cast<int64_t>(field.integer);
      if (field.number == computation_field::kInstructions) Add(field.bytes);
    }
    return input_.append("root ").append(Position(root));
  }

 private:
  void Add(std::string_view message) {
    instruction_.Read(message);
    positions_.emplace(instruction_.id, positions_.size());
    instruction_.AppendTo(&input_, settings_);
    const char* separator = "";
    input_ += '[';
    for (const int64_t operand : instruction_.operands) {
      input_.append(separator).append(Position(operand));
      separator = ", ";
    }
    input_ += ']';
  }

  std::string Position(int64_t id) const {
    const auto found = positions_.find(id);
    if (found == positions_.end()) throw std::runtime_error("an operand is not before its user");
    return std::to_string(found->second);
  }

  const Settings& settings_;
  std::string input_;
  std::unordered_map<int64_t, size_t> positions_;
  Instruction instruction_;
};

}  // namespace

Owned InstructionDigestInput(PyObject* arguments) {
  Settings settings;
  Instruction instruction;
  instruction.Read(settings.Read(arguments));
  std::string input;
  instruction.AppendTo(&input, settings);
  return Bytes(input);
}

Owned ComputationDigestInput(PyObject* arguments) {
  Settings settings;
  const std::string_view message = settings.Read(arguments);
  return Bytes(ComputationInput(settings).Of(message));
}

}  // namespace hlo_dispatch::python
