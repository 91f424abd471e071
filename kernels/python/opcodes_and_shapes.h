// Opcodes and shapes of a flat graph by number, so that instructions are compared by numbers.
#ifndef HLO_DISPATCH_PYTHON_OPCODES_AND_SHAPES_H_
#define HLO_DISPATCH_PYTHON_OPCODES_AND_SHAPES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/computation.h"

namespace hlo_dispatch::python {

struct Opcode {
  PyObject* name = nullptr;
  std::string_view text;
  int number = 0;
  bool is_numbered = false;  // whether equal instructions have equal values
  bool reads_all = false;    // whether the value depends on every field but those of name and place
  bool moves = false;        // whether it moves before a widening

  // Appends the fields on which the value depends besides opcode, shape and operands.
  void AppendFields(std::string_view instruction, std::string* key) const {
    if (!reads_all && fields_.empty()) return;
    WireReader reader(instruction);
    for (WireField field; reader.Next(&field);) {
      if (reads_all ? !IsPlace(field.number) : Reads(field.number)) key->append(field.whole);
    }
  }

  // `numbers`: a tuple of numbers of fields.
  void SetFields(PyObject* numbers) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(numbers); ++i) {
      fields_.push_back(PyLong_AsUnsignedLongLong(PyTuple_GetItem(numbers, i)));
      if (PyErr_Occurred() != nullptr) throw PythonError();
    }
  }

 private:
  static bool IsPlace(uint64_t number) {
    return number == instruction_field::kName || number == instruction_field::kMetadata ||
           number == instruction_field::kId || number == instruction_field::kOperands ||
           number == instruction_field::kControlPredecessors;
  }

  bool Reads(uint64_t number) const {
    for (const uint64_t field : fields_) {
      if (field == number) return true;
    }
    return false;
  }

  std::vector<uint64_t> fields_;
};

class Opcodes {
 public:
  // `fields`: opcode → numbers of the fields on which a value depends, or None: all. `layouts`: those that move before
  // a widening.
  Opcodes(PyObject* fields, PyObject* layouts) : fields_(fields), layouts_(layouts) {}

  const Opcode& Of(std::string_view text) {
    const auto found = known_.find(text);
    return found != known_.end() ? found->second : Add(text);
  }

 private:
  const Opcode& Add(std::string_view text) {
    PyObject* name = PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    if (name == nullptr) throw PythonError();
    PyUnicode_InternInPlace(&name);
    names_.emplace_back(name);
    Opcode made;
    made.name = name;
    made.text = Text(name);
    made.number = static_cast<int>(known_.size());
    const int moves = PySet_Contains(layouts_, name);
    if (moves < 0) throw PythonError();
    made.moves = moves == 1;
    PyObject* fields = PyDict_GetItemWithError(fields_, name);
    if (fields == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
    made.is_numbered = fields != nullptr;
    made.reads_all = fields == Py_None;
    if (made.is_numbered && !made.reads_all) made.SetFields(fields);
    return known_.emplace(made.text, std::move(made)).first->second;
  }

  PyObject *fields_, *layouts_;
  std::vector<Owned> names_;
  std::unordered_map<std::string_view, Opcode> known_;
};

class Shapes {
 public:
  // `shape_of`: serialized shape → shape; equal ones have one number.
  explicit Shapes(PyObject* shape_of) : shape_of_(shape_of), numbers_(Checked(PyDict_New())) {}

  int Of(std::string_view serialized) {
    const auto found = known_.find(serialized);
    if (found != known_.end()) return found->second;
    int64_t type = 0;
    WireReader fields(serialized);
    for (WireField field; fields.Next(&field);) {
      if (field.number == shape_field::kElementType) type = static_cast<int64_t>(field.integer);
    }
    const Owned shape = Checked(PyObject_CallFunctionObjArgs(shape_of_, Bytes(serialized).get(), nullptr));
    return known_[serialized] = NumberOf(shape.get(), type);
  }

  int NumberOf(PyObject* shape, int64_t element_type) {
    if (PyObject* known = PyDict_GetItemWithError(numbers_.get(), shape)) return static_cast<int>(PyLong_AsLong(known));
    if (PyErr_Occurred() != nullptr) throw PythonError();
    const Owned number = Checked(PyLong_FromSize_t(shapes_.size()));
    if (PyDict_SetItem(numbers_.get(), shape, number.get()) != 0) throw PythonError();
    shapes_.push_back(shape);  // the dictionary keeps it
    types_.push_back(element_type);
    return static_cast<int>(shapes_.size()) - 1;
  }

  PyObject* Shape(int number) const { return shapes_[static_cast<size_t>(number)]; }
  int64_t ElementType(int number) const { return types_[static_cast<size_t>(number)]; }
  Owned List() const { return Checked(PyDict_Keys(numbers_.get())); }

 private:
  PyObject* shape_of_;
  Owned numbers_;
  std::vector<PyObject*> shapes_;
  std::vector<int64_t> types_;
  std::unordered_map<std::string_view, int> known_;
};

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_OPCODES_AND_SHAPES_H_
