// hlo_dispatch.svml.elementwise
//
//   dst[i] = program( src[i], src_1[i], … )
//
// where the program (elementwise/program.h) is a region of elementwise instructions. Attribute 'sources' says how many
// operands there are; each has dst's dimensions, and strides of 0 where it repeats. dst is row-major. Blocks of
// elements go through all steps while they are in the first cache; functions are SVML's, of at most one unit in the
// last place.
#include <xmmintrin.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "elementwise/arithmetic.h"
#include "elementwise/program.h"

namespace hlo_dispatch::elementwise {

namespace {

constexpr int64_t kMaxSources = 64;
// Registers of a block are to stay in the first cache, beside what is read and written.
constexpr int64_t kRegisterBytes = 16 << 10, kMaxBlock = 2048, kMinBlock = 256;
// Nanoseconds that are worth waking a thread for; and pieces for each thread, of which a slower one takes fewer.
constexpr double kMinPerThread = 20'000;
constexpr int64_t kPieces = 4;
constexpr int64_t kAlignment = 64;

const Arithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

Accepted AcceptedAs(Type type) {
  if (type == Type::kMask) return Accepted::kMask;
  return type == Type::kF64 ? Accepted::kSinglesAndDoubles : Accepted::kFloats;
}

// HLO's opcode → SVML's name.
const std::map<std::string, std::string>& Functions() {
  static const auto* functions = new std::map<std::string, std::string>{
      {"acos", "acos"},
      {"acosh", "acosh"},
      {"asin", "asin"},
      {"asinh", "asinh"},
      {"atan", "atan"},
      {"atan2", "atan2"},
      {"atanh", "atanh"},
      {"cbrt", "cbrt"},
      {"cosh", "cosh"},
      {"cosine", "cos"},
      {"erf", "erf"},
      {"erf-inv", "erfinv"},
      {"erfc", "erfc"},
      {"exponential", "exp"},
      {"exponential-minus-one", "expm1"},
      {"log", "log"},
      {"log-plus-one", "log1p"},
      {"power", "pow"},
      {"sine", "sin"},
      {"sinh", "sinh"},
      {"tan", "tan"},
      {"tanh", "tanh"},
  };
  return *functions;
}

void* FunctionOf(const Provider& provider, const Arithmetic& arithmetic, const std::string& opcode, Type type) {
  const auto found = Functions().find(opcode);
  if (found == Functions().end() || (type != Type::kF32 && type != Type::kF64)) return nullptr;
  const std::string lanes =
      type == Type::kF32 ? "f" + std::to_string(arithmetic.lanes) : std::to_string(arithmetic.lanes / 2);
  return provider.Symbol<void*>("__svml_" + found->second + lanes + "_ha");
}

bool IsSingle(const StridedArray& array) {
  for (size_t i = 0; i < array.dims.size(); ++i) {
    if (array.dims[i] > 1 && array.strides[i] != 0) return false;
  }
  return true;
}

struct Source {
  StridedArray array;
  Type type;
  bool is_single;
  bool is_dense;  // its elements lie as the result's do, in registers' type
};

// In its scope this thread does not take subnormal numbers for 0, as XLA's threads do in their own code: the
// functions of one number that XLA calls return them for their like.
class WithSubnormals {
 public:
  WithSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~kTakenForZero); }
  ~WithSubnormals() { _mm_setcsr(before_); }
  WithSubnormals(const WithSubnormals&) = delete;
  WithSubnormals& operator=(const WithSubnormals&) = delete;

 private:
  static constexpr unsigned kTakenForZero = 0x8040;  // results, operands
  unsigned before_;
};

// Working memory of one thread.
class Registers {
 public:
  explicit Registers(int64_t bytes) : memory_(static_cast<size_t>(bytes + kAlignment)) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = memory_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  char* begin() const { return begin_; }

 private:
  std::vector<char> memory_;
  char* begin_;
};

class Elementwise final : public Routine {
 public:
  Elementwise(const Provider& provider, const Attributes& attributes) : arithmetic_(BestArithmetic()) {
    ReadDestination(attributes);
    ReadSources(attributes);
    std::vector<Input> inputs;
    for (const Source& source : sources_) inputs.push_back({source.type, source.is_single});
    program_ = Program::Parse(
        attributes.Text("program"), inputs, arithmetic_,
        [&](const std::string& opcode, Type type) { return FunctionOf(provider, arithmetic_, opcode, type); });
    if (program_.result != type_) Invalid("attribute 'program': expected dst's type at its end");
    results_ = {SpecOf(destination_), PlannedScratch(attributes)};
    // Behind the registers: a block of each input, and one of the result.
    const int64_t blocks = program_.registers + static_cast<int64_t>(sources_.size()) + 1;
    block_ =
        std::clamp(kRegisterBytes / (8 * std::max(1, program_.registers)), kMinBlock, kMaxBlock) / kPadding * kPadding;
    block_bytes_ = block_ * 8;
    memory_bytes_ = blocks * block_bytes_;
  }

  std::string implementation() const override { return std::string("elementwise:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    std::vector<const char*> from;
    for (size_t i = 0; i < sources_.size(); ++i) {
      from.push_back(static_cast<const char*>(sources_[i].array.Begin(const_cast<void*>(buffers.operands[i]))));
    }
    std::vector<double> singles = program_.singles;
    for (size_t i = 0; i < program_.single_inputs.size(); ++i) {
      const auto number = static_cast<size_t>(program_.single_inputs[i]);
      arithmetic_.widen(from[number], 0, 1, sources_[number].type, &singles[i]);
    }
    auto* to = static_cast<char*>(destination_.Begin(buffers.results[0]));
    const int64_t blocks = CeilOfRatio(elements_, block_);
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(elements_) * program_.nanoseconds, kMinPerThread);
    const int64_t pieces = threads == 1 ? 1 : threads * kPieces;
    parallel.For(blocks, CeilOfRatio(blocks, pieces), [&](int64_t begin, int64_t end) {
      const Registers registers(memory_bytes_);
      for (int64_t block = begin; block < end; ++block) Run(from, singles, to, block, registers.begin());
    });
  }

 private:
  void ReadDestination(const Attributes& attributes) {
    type_ = TypeFromName(attributes.Text("dst_type"), "attribute 'dst_type'");
    destination_ = ReadArray(attributes, "dst", AcceptedAs(type_));
    if (!IsRowMajor(destination_.dims, destination_.strides)) Unsupported("dst: expected row-major elements");
    if (destination_.elements > 0) Unsupported("dst: expected the whole of its buffer");
    elements_ = Elements(destination_.dims, "dst");
  }

  void ReadSources(const Attributes& attributes) {
    const int64_t count = attributes.Integer("sources");
    if (count < 1 || count > kMaxSources) {
      Invalid("attribute 'sources': expected 1 to " + std::to_string(kMaxSources) + ", got " + std::to_string(count));
    }
    for (int64_t i = 0; i < count; ++i) {
      const std::string role = i == 0 ? "src" : "src_" + std::to_string(i);
      const Type type = TypeFromName(attributes.Text(role + "_type"), "attribute '" + role + "_type'");
      const StridedArray array = ReadArray(attributes, role, AcceptedAs(type), Places::kMayRepeat);
      if (array.dims != destination_.dims) Invalid(role + ": expected dst's dimensions");
      const bool is_in_register = type == Type::kF32 || type == Type::kF64;
      const bool is_dense = is_in_register && IsRowMajor(array.dims, array.strides);
      operands_.push_back(SpecOf(array));
      sources_.push_back({array, type, IsSingle(array), is_dense});
    }
  }

  // Computes one block, of the last of which only the first elements are there.
  void Run(const std::vector<const char*>& from, const std::vector<double>& singles, char* to, int64_t block,
           char* memory) const {
    const int64_t begin = block * block_, count = std::min(block_, elements_ - begin);
    // A loop reads and writes whole vectors: only what has them goes without a copy.
    const bool is_whole = count % kPadding == 0;
    char* inputs = memory + program_.registers * block_bytes_;
    const char* starts[kMaxSources];
    for (size_t i = 0; i < sources_.size(); ++i) {
      const Source& source = sources_[i];
      starts[i] = inputs + static_cast<int64_t>(i) * block_bytes_;
      if (source.is_single) continue;
      if (source.is_dense && is_whole) {
        starts[i] = from[i] + begin * ElementBytes(source.array.type);
      } else {
        Collect(source, from[i], begin, count, inputs + static_cast<int64_t>(i) * block_bytes_);
      }
    }
    char* results = to + begin * ElementBytes(destination_.type);
    const bool is_direct = is_whole && (type_ == Type::kF32 || type_ == Type::kF64);
    char* last = is_direct ? results : inputs + static_cast<int64_t>(sources_.size()) * block_bytes_;
    for (const Step& step : program_.steps) {
      Arguments arguments{
          &step == &program_.steps.back() ? last : memory + step.to * block_bytes_, {}, count, step.function};
      for (size_t i = 0; i < step.from.size(); ++i) {
        const Place& place = step.from[i];
        const auto number = static_cast<size_t>(place.number);
        arguments.from[i] = place.kind == Place::kRegister ? memory + place.number * block_bytes_
                            : place.kind == Place::kInput  ? starts[number]
                                                           : static_cast<const void*>(&singles[number]);
      }
      if (step.function == nullptr) {
        step.loop(arguments);
      } else {
        const WithSubnormals subnormals;
        step.loop(arguments);
      }
    }
    if (!is_direct) arithmetic_.narrow(last, count, type_, results);
  }

  // Elements of an operand side by side, row after row of the last dimension.
  void Collect(const Source& source, const char* from, int64_t begin, int64_t count, char* to) const {
    const std::vector<int64_t>&dims = source.array.dims, &strides = source.array.strides;
    const int64_t row = dims.back(), bytes = ElementBytes(source.array.type);
    for (int64_t done = 0; done < count;) {
      const int64_t first = (begin + done) % row, length = std::min(row - first, count - done);
      int64_t outer = (begin + done) / row, offset = first * strides.back();
      for (size_t i = dims.size() - 1; i-- > 0; outer /= dims[i]) offset += outer % dims[i] * strides[i];
      arithmetic_.widen(from + offset * bytes, strides.back(), length, source.type,
                        to + done * RegisterBytes(source.type));
      done += length;
    }
  }

  const Arithmetic& arithmetic_;
  StridedArray destination_{};
  Type type_ = Type::kF32;
  std::vector<Source> sources_;
  Program program_;
  int64_t elements_ = 0, block_ = 0, block_bytes_ = 0, memory_bytes_ = 0;
};

const Family<Elementwise, kSvml> family("elementwise");

}  // namespace

}  // namespace hlo_dispatch::elementwise
