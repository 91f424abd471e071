// Elementwise program: the steps of a region, parsed from an attribute, checked, and given registers.
//
// Steps are separated by ";", each is the result's element type, an opcode of HLO and the numbers of its operands.
// Values are numbered: the call's operands first, then the results of the steps, the last of which is the program's:
//
//   f32 sine 0; f32 constant 3f000000; f32 multiply 2 3
//
// A comparison is compare.LT and the like, a constant has the bits of its number in hexadecimal.
#ifndef HLO_DISPATCH_ELEMENTWISE_PROGRAM_H_
#define HLO_DISPATCH_ELEMENTWISE_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "elementwise/arithmetic.h"

namespace hlo_dispatch::elementwise {

// An operand of a call.
struct Input {
  Type type;
  bool is_single;  // one number for all elements
};

// Where a step finds an operand: its own block of a register or of an input, or one number.
struct Place {
  enum Kind { kRegister, kInput, kSingle } kind;
  int number;
};

struct Step {
  Loop loop;
  void* function;
  std::vector<Place> from;
  int to;  // a register
};

// The address of a function of vectors by HLO's opcode; null: there is none. Throws where the library lacks it.
using FindFunction = std::function<void*(const std::string& opcode, Type type)>;

struct Program {
  std::vector<Step> steps;
  std::vector<double> singles;     // bits of inputs that are single, unset here, then of constants; 8 bytes each
  std::vector<int> single_inputs;  // for each single input its number
  int registers = 0;
  double nanoseconds = 0;  // a rough estimate for each element
  Type result = Type::kF32;

  // Throws Failure(kInvalid) where the text is no program, and Failure(kUnsupported) for what there is no code for.
  static Program Parse(const std::string& text, const std::vector<Input>& inputs, const Arithmetic& arithmetic,
                       const FindFunction& find);
};

// The type that an attribute names; throws Failure(kInvalid).
Type TypeFromName(const std::string& name, const std::string& attribute);
// Bytes of an element in a register.
int64_t RegisterBytes(Type type);

}  // namespace hlo_dispatch::elementwise

#endif  // HLO_DISPATCH_ELEMENTWISE_PROGRAM_H_
