#include "python/flat_graph.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/computation.h"
#include "python/flat_graph_nodes.h"
#include "python/opcodes_and_shapes.h"

namespace hlo_dispatch::python {
namespace {

// Numbers of element types (xla_data.proto).
constexpr int64_t kF16 = 10, kF32 = 11, kTuple = 13, kBf16 = 16;
// XLA nests fusions two or three deep. A module in which a fusion calls itself has no end.
constexpr int kDeepest = 64;
// Fusions that each call the next one twice double with every level. XLA's have some thousand instructions at most.
constexpr size_t kMostExpanded = 1 << 18;

// What Python gives besides the computation (_kernels.pyi).
struct Settings {
  PyObject *called = nullptr, *shape_of = nullptr, *rearranged = nullptr, *fields = nullptr, *layouts = nullptr;
  PyObject* inserted_copy = nullptr;
};

using Values = std::unordered_map<int64_t, int>;

int At(const Values& values, int64_t id) {
  const auto found = values.find(id);
  if (found == values.end()) throw std::runtime_error("an operand is not before its user");
  return found->second;
}

class Flattening {
 public:
  explicit Flattening(const Settings& settings)
      : settings_(settings), opcodes_(settings.fields, settings.layouts), shapes_(settings.shape_of) {}

  void Run(const Computation& computation) {
    for (size_t place = 0; place < computation.instructions.size(); ++place) {
      AddInstruction(computation.instructions[place], computation.Proto(place));
    }
    root_ = At(value_of_, computation.root);
    DropDeadUsers();
  }

  Owned ToPython(const Computation& computation, PyObject* node_class) const {
    const Nodes nodes(values_, shapes_, root_, node_class);
    Owned value_of = Checked(PyDict_New()), instruction_of = Checked(PyDict_New());
    for (size_t place = 0; place < computation.instructions.size(); ++place) {
      const Owned id = Checked(PyLong_FromLongLong(computation.instructions[place].id));
      SetItem(value_of, id, nodes.At(value_of_.at(computation.instructions[place].id)));
      SetItem(instruction_of, id, computation.Proto(place));
    }
    return Checked(Py_BuildValue("(ONNNNON)", nodes.list(), value_of.release(), instruction_of.release(),
                                 Lists(nodes, members_).release(), Lists(nodes, narrow_of_).release(), nodes.At(root_),
                                 shapes_.List().release()));
  }

 private:
  void AddInstruction(const Instruction& instruction, PyObject* proto) {
    std::vector<int> operands = OperandsOf(instruction, value_of_);
    int value = 0;
    if (instruction.opcode == "fusion" && IsExpandable(instruction)) {
      std::vector<int> members;
      expanded_ = 0;
      value = Expand(Called(instruction), operands, /*depth=*/1, &members);
      members.insert(members.end(), narrow_.begin(), narrow_.end());
      for (const int member : members) values_[static_cast<size_t>(member)].producers.push_back(instruction.id);
      members_.emplace_back(instruction.id, std::move(members));
    } else {
      // Copy insertion has run: a copy outside a fusion separates two live ranges and must stay.
      const bool is_copy = instruction.opcode == "copy";
      const Opcode& opcode = opcodes_.Of(is_copy ? Text(settings_.inserted_copy) : instruction.opcode);
      value = Number(instruction, proto, std::move(operands), opcode, /*inside=*/false);
      values_[static_cast<size_t>(value)].producers.push_back(instruction.id);
      for (const int narrow : narrow_) values_[static_cast<size_t>(narrow)].producers.push_back(instruction.id);
      if (!narrow_.empty()) narrow_of_.emplace_back(instruction.id, narrow_);
    }
    narrow_.clear();
    Value& result = values_[static_cast<size_t>(value)];
    if (!result.is_top_level) {
      result.is_top_level = true;
      result.top_level = instruction.id;
    }
    value_of_[instruction.id] = value;
  }

  static std::vector<int> OperandsOf(const Instruction& instruction, const Values& values) {
    std::vector<int> operands;
    operands.reserve(instruction.operands.size());
    for (const int64_t operand : instruction.operands) operands.push_back(At(values, operand));
    return operands;
  }

  // The computation that a fusion calls; Python keeps what it is a view of.
  Computation Called(const Instruction& fusion) {
    if (fusion.called.empty()) throw std::runtime_error("a fusion calls no computation");
    const Owned id = Checked(PyLong_FromLongLong(fusion.called.front()));
    called_.push_back(Checked(PyObject_CallFunctionObjArgs(settings_.called, id.get(), nullptr)));
    PyObject *message = nullptr, *protos = nullptr;
    if (!PyArg_ParseTuple(called_.back().get(), "SO!", &message, &PyList_Type, &protos)) throw PythonError();
    return Computation(View(message), protos);
  }

  // Whether there is one value: a fusion with several outputs is opaque, but for those of one reduction.
  bool IsExpandable(const Instruction& fusion) {
    if (fusion.waits) return false;
    if (shapes_.ElementType(shapes_.Of(fusion.shape)) != kTuple) return true;
    const Computation called = Called(fusion);
    return std::any_of(called.instructions.begin(), called.instructions.end(), [&](const Instruction& instruction) {
      return instruction.id == called.root && instruction.opcode == "reduce";
    });
  }

  int Expand(const Computation& fused, const std::vector<int>& operands, int depth, std::vector<int>* members) {
    if (depth > kDeepest) throw std::runtime_error("fusions are nested too deep, or one calls itself");
    expanded_ += fused.instructions.size();
    if (expanded_ > kMostExpanded) throw std::runtime_error("fusions call each other too often to be expanded");
    Values values;
    values.reserve(fused.instructions.size());
    for (size_t place = 0; place < fused.instructions.size(); ++place) {
      const Instruction& instruction = fused.instructions[place];
      if (instruction.opcode == "parameter") {
        const auto parameter = static_cast<size_t>(instruction.parameter);
        if (parameter >= operands.size()) throw std::runtime_error("a fusion has fewer operands than parameters");
        values[instruction.id] = operands[parameter];
        continue;
      }
      std::vector<int> inner = OperandsOf(instruction, values);
      if (instruction.opcode == "fusion") {
        values[instruction.id] = Expand(Called(instruction), inner, depth + 1, members);
        continue;
      }
      const Opcode& opcode = opcodes_.Of(instruction.opcode);
      const int value = Number(instruction, fused.Proto(place), std::move(inner), opcode, /*inside=*/true);
      values[instruction.id] = value;
      members->push_back(value);
    }
    return At(values, fused.root);
  }

  // The value of this instruction: an existing one where an equal instruction was seen.
  int Number(const Instruction& instruction, PyObject* proto, std::vector<int> operands, const Opcode& opcode,
             bool inside) {
    const bool waits = !inside && instruction.waits;
    if (opcode.moves && !waits && CanMoveBefore(operands.at(0))) {
      return RearrangedBeforeWidening(instruction, proto, operands[0], opcode);
    }
    return Known(instruction, shapes_.Of(instruction.shape), proto, std::move(operands), opcode, waits);
  }

  int Known(const Instruction& instruction, int shape, PyObject* proto, std::vector<int> operands, const Opcode& opcode,
            bool waits) {
    if (!opcode.is_numbered) return New(shape, proto, std::move(operands), opcode, instruction.waits);
    key_.clear();
    Append(opcode.number);
    Append(shape);
    Append(static_cast<int>(operands.size()));
    for (const int operand : operands) Append(operand);
    opcode.AppendFields(instruction.message, &key_);
    const auto known = numbering_.find(key_);
    if (known != numbering_.end() && !waits) return known->second;
    const int value = New(shape, proto, std::move(operands), opcode, instruction.waits);
    numbering_[key_] = value;
    return value;
  }

  void Append(int number) { key_.append(reinterpret_cast<const char*>(&number), sizeof number); }

  int New(int shape, PyObject* proto, std::vector<int> operands, const Opcode& opcode, bool waits) {
    const int number = static_cast<int>(values_.size());
    bool may_be_scalar = !operands.empty() || opcode.text == "constant";
    for (const int operand : operands) {
      may_be_scalar &= values_[static_cast<size_t>(operand)].may_be_scalar;
      // A value's newest user is last.
      std::vector<int>& users = values_[static_cast<size_t>(operand)].users;
      if (users.empty() || users.back() != number) users.push_back(number);
    }
    values_.push_back({&opcode, shape, std::move(operands), proto, waits, may_be_scalar, {}, {}});
    return number;
  }

  // Whether a value is a convert that changes no value, and waits for nothing.
  bool CanMoveBefore(int number) const {
    const Value& value = values_[static_cast<size_t>(number)];
    if (value.opcode->text != "convert" || value.waits || shapes_.ElementType(value.shape) != kF32) return false;
    const int64_t from = shapes_.ElementType(values_[static_cast<size_t>(value.operands.at(0))].shape);
    return from == kF16 || from == kBf16;
  }

  // An instruction that rearranges a widened value as a widening of the rearranged value.
  int RearrangedBeforeWidening(const Instruction& instruction, PyObject* proto, int widened, const Opcode& opcode) {
    const int source = values_[static_cast<size_t>(widened)].operands[0];
    const int narrower = values_[static_cast<size_t>(source)].shape;
    made_.push_back(
        Checked(PyObject_CallFunctionObjArgs(settings_.rearranged, proto, shapes_.Shape(narrower), nullptr)));
    PyObject *narrow = nullptr, *wide = nullptr, *shape = nullptr;
    if (!PyArg_ParseTuple(made_.back().get(), "OOO", &narrow, &wide, &shape)) throw PythonError();
    const int number = shapes_.NumberOf(shape, shapes_.ElementType(narrower));
    const int moved = Known(instruction, number, narrow, {source}, opcode, /*waits=*/false);
    narrow_.push_back(moved);
    const Instruction widening{std::string_view()};
    return Known(widening, shapes_.Of(instruction.shape), wide, {moved}, opcodes_.Of("convert"), /*waits=*/false);
  }

  // XLA leaves dead code inside some fusions.
  void DropDeadUsers() {
    values_[static_cast<size_t>(root_)].is_live = true;
    for (auto value = values_.rbegin(); value != values_.rend(); ++value) {
      // A top-level instruction is needed whether or not its result is used: it may have a side effect. A convert has
      // none, and its rearranging user may have been moved before it.
      value->is_live |= value->is_top_level && value->opcode->text != "convert";
      if (!value->is_live) continue;
      for (const int operand : value->operands) values_[static_cast<size_t>(operand)].is_live = true;
    }
    for (Value& value : values_) {
      std::vector<int>& users = value.users;
      const auto is_dead = [&](int user) { return !values_[static_cast<size_t>(user)].is_live; };
      users.erase(std::remove_if(users.begin(), users.end(), is_dead), users.end());
    }
  }

  // Id of an instruction → nodes.
  static Owned Lists(const Nodes& nodes, const std::vector<std::pair<int64_t, std::vector<int>>>& values) {
    Owned lists = Checked(PyDict_New());
    for (const auto& [instruction, numbers] : values) {
      SetItem(lists, Checked(PyLong_FromLongLong(instruction)), nodes.List(numbers).get());
    }
    return lists;
  }

  const Settings& settings_;
  Opcodes opcodes_;
  Shapes shapes_;
  std::vector<Owned> called_, made_;
  std::vector<Value> values_;
  std::unordered_map<std::string, int> numbering_;
  std::string key_;
  Values value_of_;
  std::vector<std::pair<int64_t, std::vector<int>>> members_, narrow_of_;
  std::vector<int> narrow_;  // values before the widenings of the instruction that is added
  size_t expanded_ = 0;  // instructions of the fusion that is expanded, those of nested ones as often as it calls them
  int root_ = 0;
};

}  // namespace

Owned FlatGraph(PyObject* arguments) {
  Settings settings;
  PyObject *message = nullptr, *protos = nullptr, *node_class = nullptr;
  if (!PyArg_ParseTuple(arguments, "SO!OOOOO!OU", &message, &PyList_Type, &protos, &settings.called, &settings.shape_of,
                        &settings.rearranged, &node_class, &PyDict_Type, &settings.fields, &settings.layouts,
                        &settings.inserted_copy)) {
    throw PythonError();
  }
  const Computation computation(View(message), protos);
  Flattening flattening(settings);
  flattening.Run(computation);
  return flattening.ToPython(computation, node_class);
}

}  // namespace hlo_dispatch::python
