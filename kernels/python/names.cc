#include "python/names.h"

#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "python/messages.h"

namespace hlo_dispatch::python {
namespace {

class Names {
 public:
  void AddModule(std::string_view module) {
    WireReader fields(module);
    for (WireField field; fields.Next(&field);) {
      if (field.number == module_field::kComputations) AddComputation(field.bytes);
    }
  }

  Owned ToPython() const { return Checked(Py_BuildValue("(OO)", opcodes_of_.get(), names_.get())); }

 private:
  void AddComputation(std::string_view computation) {
    uint64_t id = 0;
    std::vector<bool> has(opcodes_.size());
    WireReader fields(computation);
    for (WireField field; fields.Next(&field);) {
      if (field.number == computation_field::kName) AddName(field.bytes);
      if (field.number == computation_field::kId) id = field.integer;
      if (field.number == computation_field::kInstructions) AddInstruction(field.bytes, &has);
    }
    const Owned key = Checked(PyLong_FromUnsignedLongLong(id));
    if (PyDict_SetItem(opcodes_of_.get(), key.get(), SetOf(has)) != 0) throw PythonError();
  }

  void AddInstruction(std::string_view instruction, std::vector<bool>* has) {
    WireReader fields(instruction);
    for (WireField field; fields.Next(&field);) {
      if (field.number == instruction_field::kName) AddName(field.bytes);
      if (field.number == instruction_field::kOpcode) {
        const size_t number = NumberOf(field.bytes);
        if (has->size() <= number) has->resize(number + 1);
        (*has)[number] = true;
      }
    }
  }

  void AddName(std::string_view name) {
    if (PySet_Add(names_.get(), String(name).get()) != 0) throw PythonError();
  }

  size_t NumberOf(std::string_view opcode) {
    const auto [known, is_new] = number_of_.emplace(opcode, opcodes_.size());
    if (is_new) opcodes_.push_back(String(opcode));
    return known->second;
  }

  // The set of these opcodes; computations with the same ones share it.
  PyObject* SetOf(std::vector<bool> has) {
    while (!has.empty() && !has.back()) has.pop_back();
    Owned& set = sets_[has];
    if (set == nullptr) {
      const Owned opcodes = Checked(PyList_New(0));
      for (size_t number = 0; number < has.size(); ++number) {
        if (has[number] && PyList_Append(opcodes.get(), opcodes_[number].get()) != 0) throw PythonError();
      }
      set = Checked(PyFrozenSet_New(opcodes.get()));
    }
    return set.get();
  }

  static Owned String(std::string_view text) {
    return Checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
  }

  Owned opcodes_of_ = Checked(PyDict_New()), names_ = Checked(PySet_New(nullptr));
  std::vector<Owned> opcodes_;
  std::unordered_map<std::string_view, size_t> number_of_;
  std::map<std::vector<bool>, Owned> sets_;
};

}  // namespace

Owned OpcodesAndNames(PyObject* serialized) {
  Names names;
  names.AddModule(View(serialized));
  return names.ToPython();
}

}  // namespace hlo_dispatch::python
