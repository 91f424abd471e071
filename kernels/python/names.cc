#include "python/names.h"

#include <string_view>
#include <unordered_set>

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

  Owned ToPython() const { return Checked(Py_BuildValue("(OO)", opcodes_.get(), names_.get())); }

 private:
  void AddComputation(std::string_view computation) {
    WireReader fields(computation);
    for (WireField field; fields.Next(&field);) {
      if (field.number == computation_field::kName) Add(field.bytes, names_);
      if (field.number == computation_field::kInstructions) AddInstruction(field.bytes);
    }
  }

  void AddInstruction(std::string_view instruction) {
    WireReader fields(instruction);
    for (WireField field; fields.Next(&field);) {
      if (field.number == instruction_field::kName) Add(field.bytes, names_);
      if (field.number == instruction_field::kOpcode && known_.insert(field.bytes).second) Add(field.bytes, opcodes_);
    }
  }

  static void Add(std::string_view text, const Owned& to) {
    const Owned string = Checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
    if (PySet_Add(to.get(), string.get()) != 0) throw PythonError();
  }

  Owned opcodes_ = Checked(PySet_New(nullptr)), names_ = Checked(PySet_New(nullptr));
  std::unordered_set<std::string_view> known_;
};

}  // namespace

Owned OpcodesAndNames(PyObject* serialized) {
  Names names;
  names.AddModule(View(serialized));
  return names.ToPython();
}

}  // namespace hlo_dispatch::python
