#include "python/digests.h"

#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "python/computation.h"

namespace hlo_dispatch::python {
namespace {

// What decides about the digest's input of an instruction besides itself. Keys are views of the message.
class Settings {
 public:
  // The message, and what decides, from a Python call.
  std::string_view Read(PyObject* arguments) {
    PyObject* message = nullptr;
    if (!PyArg_ParseTuple(arguments, "SO!OO", &message, &PyDict_Type, &digests_, &plain_, &is_large_)) {
      throw PythonError();
    }
    return View(message);
  }

  void Append(const Instruction& instruction, std::string* input) {
    if (HasOnlyAShape(instruction)) {
      // The most frequent opcodes, and weights: the code does not depend on their values.
      input->append(instruction.opcode).append(instruction.shape);
      return;
    }
    AppendMeaning(instruction.message, input);
    for (const int64_t computation : instruction.called) {
      const Owned key = Checked(PyLong_FromLongLong(computation));
      PyObject* digest = PyDict_GetItemWithError(digests_, key.get());
      if (digest == nullptr) throw std::runtime_error("a computation is called that is not before its caller");
      *input += View(digest);
    }
  }

 private:
  static void AppendMeaning(std::string_view message, std::string* input) {
    WireReader fields(message);
    for (WireField field; fields.Next(&field);) {
      switch (field.number) {
        case instruction_field::kName:
        case instruction_field::kMetadata:
        case instruction_field::kControlPredecessors:
        case instruction_field::kId:
        case instruction_field::kOperands:
        case instruction_field::kCalledComputations:
          break;
        default:
          *input += field.whole;
      }
    }
  }

  bool HasOnlyAShape(const Instruction& instruction) {
    if (instruction.opcode == "constant") {
      return Known(&known_large_, instruction.shape, [&](PyObject* shape) {
        const Owned large = Checked(PyObject_CallFunctionObjArgs(is_large_, shape, nullptr));
        return PyObject_IsTrue(large.get());
      });
    }
    return Known(&known_plain_, instruction.opcode, [&](PyObject* bytes) {
      const Owned opcode = Checked(PyUnicode_FromEncodedObject(bytes, "ascii", nullptr));
      return PySet_Contains(plain_, opcode.get());
    });
  }

  template <typename Ask>
  static bool Known(std::unordered_map<std::string_view, bool>* answers, std::string_view of, Ask ask) {
    const auto found = answers->find(of);
    if (found != answers->end()) return found->second;
    const int answer = ask(Bytes(of).get());
    if (answer < 0) throw PythonError();
    return answers->emplace(of, answer == 1).first->second;
  }

  PyObject* digests_ = nullptr;   // id of a computation → its digest
  PyObject* plain_ = nullptr;     // opcodes of instructions that have nothing but a shape
  PyObject* is_large_ = nullptr;  // serialized shape of a constant → whether its elements do not count
  std::unordered_map<std::string_view, bool> known_large_, known_plain_;
};

class ComputationInput {
 public:
  explicit ComputationInput(Settings* settings) : settings_(settings) {}

  std::string Of(std::string_view computation) {
    int64_t root = 0;
    WireReader fields(computation);
    for (WireField field; fields.Next(&field);) {
      if (field.number == computation_field::kRoot) root = static_cast<int64_t>(field.integer);
      if (field.number == computation_field::kInstructions) Add(Instruction(field.bytes));
    }
    return input_.append("root ").append(Position(root));
  }

 private:
  void Add(const Instruction& instruction) {
    positions_.emplace(instruction.id, positions_.size());
    settings_->Append(instruction, &input_);
    const char* separator = "";
    input_ += '[';
    for (const int64_t operand : instruction.operands) {
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

  Settings* settings_;
  std::string input_;
  std::unordered_map<int64_t, size_t> positions_;
};

void Set(PyObject* dictionary, PyObject* key, const Owned& value) {
  if (PyDict_SetItem(dictionary, key, value.get()) != 0) throw PythonError();
}

// Adds a user to an instruction's, unless it was the last one that was added.
void AddUser(PyObject* users, PyObject* id, PyObject* user) {
  PyObject* known = PyDict_GetItemWithError(users, id);
  if (known == nullptr) {
    if (PyErr_Occurred() != nullptr) throw PythonError();
    const Owned made = Checked(PyList_New(0));
    Set(users, id, made);
    known = made.get();
  }
  const Py_ssize_t count = PyList_Size(known);
  if (count > 0 && PyList_GetItem(known, count - 1) == user) return;
  if (PyList_Append(known, user) != 0) throw PythonError();
}

}  // namespace

Owned InstructionDigestInput(PyObject* arguments) {
  Settings settings;
  std::string input;
  const Instruction instruction(settings.Read(arguments));
  settings.Append(instruction, &input);
  return Bytes(input);
}

Owned InstructionIndex(PyObject* arguments) {
  Settings settings;
  const std::string_view message = settings.Read(arguments);
  const Owned inputs = Checked(PyDict_New()), operands = Checked(PyDict_New()), users = Checked(PyDict_New());
  std::string input;
  std::unordered_map<int64_t, Owned> ids;
  const auto id_of = [&](int64_t id) {
    Owned& found = ids[id];
    if (found == nullptr) found = Checked(PyLong_FromLongLong(id));
    return found.get();
  };
  WireReader fields(message);
  for (WireField field; fields.Next(&field);) {
    if (field.number != computation_field::kInstructions) continue;
    const Instruction instruction(field.bytes);
    PyObject* id = id_of(instruction.id);
    input.clear();
    settings.Append(instruction, &input);
    Set(inputs.get(), id, Bytes(input));
    const Owned read = Checked(PyTuple_New(static_cast<Py_ssize_t>(instruction.operands.size())));
    Py_ssize_t place = 0;
    for (const int64_t operand : instruction.operands) {
      PyTuple_SetItem(read.get(), place++, Py_NewRef(id_of(operand)));
      AddUser(users.get(), id_of(operand), id);
    }
    Set(operands.get(), id, read);
  }
  return Checked(Py_BuildValue("(OOO)", inputs.get(), operands.get(), users.get()));
}

Owned ComputationDigestInput(PyObject* arguments) {
  Settings settings;
  const std::string_view message = settings.Read(arguments);
  return Bytes(ComputationInput(&settings).Of(message));
}

}  // namespace hlo_dispatch::python
