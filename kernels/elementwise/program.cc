#include "elementwise/program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>

#include "common/failure.h"

namespace hlo_dispatch::elementwise {

namespace {

constexpr size_t kMaxSteps = 1024;
// Of one vector of f32, about: what costs are estimated with.
constexpr double kNanosecondsPerLoop = 0.1, kNanosecondsPerFunction = 1.0;

struct Opcode {
  Operation operation;
  size_t operands;
};

const std::map<std::string, Opcode>& Opcodes() {
  static const auto* opcodes = new std::map<std::string, Opcode>{
      {"add", {Operation::kAdd, 2}},
      {"subtract", {Operation::kSubtract, 2}},
      {"multiply", {Operation::kMultiply, 2}},
      {"divide", {Operation::kDivide, 2}},
      {"maximum", {Operation::kMaximum, 2}},
      {"minimum", {Operation::kMinimum, 2}},
      {"compare.EQ", {Operation::kEqual, 2}},
      {"compare.NE", {Operation::kUnequal, 2}},
      {"compare.GE", {Operation::kGreaterOrEqual, 2}},
      {"compare.GT", {Operation::kGreater, 2}},
      {"compare.LE", {Operation::kLessOrEqual, 2}},
      {"compare.LT", {Operation::kLess, 2}},
      {"and", {Operation::kAnd, 2}},
      {"or", {Operation::kOr, 2}},
      {"xor", {Operation::kXor, 2}},
      {"not", {Operation::kNot, 1}},
      {"select", {Operation::kSelect, 3}},
      {"abs", {Operation::kAbs, 1}},
      {"negate", {Operation::kNegate, 1}},
      {"sign", {Operation::kSign, 1}},
      {"floor", {Operation::kFloor, 1}},
      {"ceil", {Operation::kCeil, 1}},
      {"round-nearest-even", {Operation::kRoundToEven, 1}},
      {"round-nearest-afz", {Operation::kRoundAwayFromZero, 1}},
      {"sqrt", {Operation::kSquareRoot, 1}},
      {"rsqrt", {Operation::kReciprocalSquareRoot, 1}},
      {"is-finite", {Operation::kIsFinite, 1}},
      {"convert", {Operation::kConvert, 1}},
      {"atan2", {Operation::kBinaryFunction, 2}},
      {"power", {Operation::kBinaryFunction, 2}},
  };
  return *opcodes;
}

bool GivesMask(Operation operation) {
  return (operation >= Operation::kEqual && operation <= Operation::kLess) || operation == Operation::kIsFinite;
}

struct Value {
  Type type;
  Place place;
  int last_use = -1;
};

class Parser {
 public:
  Parser(const std::vector<Input>& inputs, const Arithmetic& arithmetic, const FindFunction& find)
      : arithmetic_(arithmetic), find_(find) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int number = static_cast<int>(i);
      if (!inputs[i].is_single) {
        values_.push_back({inputs[i].type, {Place::kInput, number}});
        continue;
      }
      values_.push_back({inputs[i].type, {Place::kSingle, static_cast<int>(program_.singles.size())}});
      program_.singles.push_back(0);
      program_.single_inputs.push_back(number);
    }
  }

  Program Parse(const std::string& text) {
    std::istringstream stream(text);
    for (std::string step; std::getline(stream, step, ';');) {
      if (values_.size() > kMaxSteps) Unsupported(What() + ": expected at most 1024 values");
      Add(step);
    }
    if (program_.steps.empty() || values_.back().place.kind != Place::kRegister) {
      Invalid("attribute 'program': expected a step that computes something at its end");
    }
    program_.result = values_.back().type;
    AssignRegisters();
    return std::move(program_);
  }

 private:
  std::string What() const { return "attribute 'program', value " + std::to_string(values_.size()); }

  void Add(const std::string& text) {
    std::istringstream words(text);
    std::string type_name, opcode, word;
    if (!(words >> type_name >> opcode))
      Invalid(What() + ": expected a type, an opcode and operands, got '" + text + "'");
    const Type type = TypeFromName(type_name, What());
    if (opcode == "constant") {
      if (!(words >> word)) Invalid(What() + ": expected the bits of a number");
      return AddConstant(type, word);
    }
    std::vector<int> operands;
    while (words >> word) operands.push_back(Number(word));
    AddStep(type, opcode, operands);
  }

  int Number(const std::string& word) const {
    const bool is_number = !word.empty() && word.size() <= 5 &&
                           std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number || std::stoul(word) >= values_.size()) {
      Invalid(What() + ": expected the number of a value before it, got '" + word + "'");
    }
    return std::stoi(word);
  }

  void AddConstant(Type type, const std::string& word) {
    const size_t digits = type == Type::kF64 ? 16 : 8;
    const bool is_hexadecimal =
        word.size() == digits && word.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (type == Type::kMask || !is_hexadecimal) {
      Invalid(What() + ": expected " + std::to_string(digits) + " hexadecimal digits of a number, got '" + word + "'");
    }
    const uint64_t bits = std::stoull(word, nullptr, 16);
    double single = 0;
    std::memcpy(&single, &bits, sizeof(single));  // the lower half comes first, where a number of f32 is
    values_.push_back({type, {Place::kSingle, static_cast<int>(program_.singles.size())}});
    program_.singles.push_back(single);
  }

  void AddStep(Type type, const std::string& opcode, const std::vector<int>& operands) {
    const auto found = Opcodes().find(opcode);
    const Opcode meaning = found != Opcodes().end() ? found->second : Opcode{Operation::kUnaryFunction, 1};
    if (operands.size() != meaning.operands) {
      Invalid(What() + ": expected " + std::to_string(meaning.operands) + " operands of " + opcode + ", got " +
              std::to_string(operands.size()));
    }
    Step step{nullptr, nullptr, {}, 0};
    unsigned singles = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      Value& value = values_[static_cast<size_t>(operands[i])];
      value.last_use = static_cast<int>(program_.steps.size());
      step.from.push_back(value.place);
      if (value.place.kind == Place::kSingle) singles |= 1u << i;
    }
    const Type from = values_[static_cast<size_t>(operands.back())].type;
    CheckTypes(type, opcode, meaning.operation, operands, from);
    const bool is_function =
        meaning.operation == Operation::kUnaryFunction || meaning.operation == Operation::kBinaryFunction;
    if (is_function) step.function = find_(opcode, type);
    if (is_function && step.function == nullptr) Unsupported(What() + ": there is no function for " + opcode);
    step.loop = arithmetic_.loop(meaning.operation, from, type, singles);
    if (step.loop == nullptr) Unsupported(What() + ": there is no code for " + opcode + " of such operands");
    const int64_t bytes = RegisterBytes(type);
    program_.nanoseconds +=
        (is_function ? kNanosecondsPerFunction : kNanosecondsPerLoop) * static_cast<double>(bytes) / 4;
    may_overwrite_.push_back(std::all_of(operands.begin(), operands.end(), [&](int operand) {
      return RegisterBytes(values_[static_cast<size_t>(operand)].type) == bytes;
    }));
    step.to = static_cast<int>(values_.size());  // the value, until there are registers
    program_.steps.push_back(std::move(step));
    values_.push_back({type, {Place::kRegister, static_cast<int>(values_.size())}});
  }

  void CheckTypes(Type type, const std::string& opcode, Operation operation, const std::vector<int>& operands,
                  Type from) const {
    const size_t first = operation == Operation::kSelect ? 1 : 0;
    for (size_t i = first; i < operands.size(); ++i) {
      if (values_[static_cast<size_t>(operands[i])].type != from) Invalid(What() + ": expected operands of one type");
    }
    if (first == 1 && values_[static_cast<size_t>(operands[0])].type != Type::kMask) {
      Invalid(What() + ": expected pred as the first operand of select");
    }
    if (operation == Operation::kConvert) return;
    const bool is_half = from == Type::kBF16 || from == Type::kF16;
    if (is_half && operation != Operation::kSelect) Unsupported(What() + ": " + opcode + " of half precision");
    const Type expected = GivesMask(operation) ? Type::kMask : from;
    if (type != expected) Invalid(What() + ": " + opcode + " gives another type");
  }

  // Values get registers in the order of the steps; one is free again with its last use, for the same step's result
  // too.
  void AssignRegisters() {
    std::map<int, int> register_of;
    std::vector<int> free;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      Step& step = program_.steps[i];
      std::vector<int> ended;
      for (Place& place : step.from) {
        if (place.kind != Place::kRegister) continue;
        const int value = place.number;
        place.number = register_of.at(value);
        if (values_[static_cast<size_t>(value)].last_use == static_cast<int>(i)) ended.push_back(place.number);
      }
      std::sort(ended.begin(), ended.end());
      ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
      // A loop may write over what it reads only where both have elements of one size.
      const int value = step.to;
      const bool may_overwrite = may_overwrite_[i];
      if (may_overwrite) free.insert(free.end(), ended.begin(), ended.end());
      if (free.empty()) free.push_back(program_.registers++);
      step.to = register_of[value] = free.back();
      free.pop_back();
      if (!may_overwrite) free.insert(free.end(), ended.begin(), ended.end());
      if (values_[static_cast<size_t>(value)].last_use < 0) free.push_back(step.to);  // dead, or the result
    }
  }

  const Arithmetic& arithmetic_;
  const FindFunction& find_;
  Program program_;
  std::vector<Value> values_;
  std::vector<bool> may_overwrite_;  // for each step, one of its operands
};

}  // namespace

Program Program::Parse(const std::string& text, const std::vector<Input>& inputs, const Arithmetic& arithmetic,
                       const FindFunction& find) {
  return Parser(inputs, arithmetic, find).Parse(text);
}

Type TypeFromName(const std::string& name, const std::string& attribute) {
  constexpr const char* kNames[] = {"f32", "f64", "bf16", "f16", "pred"};
  for (int i = 0; i < 5; ++i) {
    if (name == kNames[i]) return static_cast<Type>(i);
  }
  Invalid(attribute + ": expected an element type of f32, f64, bf16, f16, pred, got '" + name + "'");
}

int64_t RegisterBytes(Type type) { return type == Type::kF64 ? 8 : 4; }

}  // namespace hlo_dispatch::elementwise
