// hlo_dispatch.own.threefry2x32
//
//   for i in 0, 1, 2, 3, 4:
//     for bits in 13, 15, 26, 6 (i is even) or 17, 29, 16, 24 (i is odd):
//       first += second, second = rotated(second, bits) ^ first
//     first += key_(i mod 3), second += key_(i + 1 mod 3) + i + 1
//
// Threefry of two words with 20 rounds (Salmon et al., 2011), as jax.random has it, behind its first addition of keys.
// Operands: first and second, of as many u32 side by side, and key_0, key_1 and key_2, u32. Results: hashed_first and
// hashed_second, as first, and scratch.
#include <cstdint>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "random/arithmetic.h"

namespace hlo_dispatch::random {

namespace {

// Pairs that are worth waking a thread for: they take some ten microseconds.
constexpr double kMinPerThread = 1 << 14;

class Threefry final : public Routine {
 public:
  Threefry(const Provider&, const Attributes& attributes)
      : arithmetic_(ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic)) {
    const std::string type = attributes.Text("type");
    if (type != "u32") Unsupported("attribute 'type': expected u32, got " + type);
    count_ = Count(attributes, "first");
    if (count_ < 1) Unsupported("attribute 'first_dims': expected elements");
    for (const char* role : {"second", "hashed_first", "hashed_second"}) {
      if (Count(attributes, role) != count_) Invalid(std::string(role) + ": expected as many words as first has");
    }
    const int64_t bytes = Bytes(count_, sizeof(uint32_t), "attribute 'first_dims'");
    operands_ = {{"first", xla::ffi::U32, bytes}, {"second", xla::ffi::U32, bytes}};
    for (const char* role : {"key_0", "key_1", "key_2"}) {
      if (Count(attributes, role) != 1) Invalid(std::string(role) + ": expected one word");
      operands_.push_back({role, xla::ffi::U32, sizeof(uint32_t)});
    }
    results_ = {
        {"hashed_first", xla::ffi::U32, bytes}, {"hashed_second", xla::ffi::U32, bytes}, PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("threefry:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto words = [&](int operand) { return static_cast<const uint32_t*>(buffers.operands[operand]); };
    const uint32_t keys[kKeys] = {*words(2), *words(3), *words(4)};
    auto* hashed_first = static_cast<uint32_t*>(buffers.results[0]);
    auto* hashed_second = static_cast<uint32_t*>(buffers.results[1]);
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(count_), kMinPerThread);
    parallel.For(count_, CeilOfRatio(count_, threads), [&](int64_t begin, int64_t end) {
      arithmetic_.hash(words(0) + begin, words(1) + begin, end - begin, keys, hashed_first + begin,
                       hashed_second + begin);
    });
  }

 private:
  static int64_t Count(const Attributes& attributes, const std::string& role) {
    const std::vector<int64_t> dims = attributes.Integers(role + "_dims");
    const std::vector<int64_t> strides = attributes.Integers(role + "_strides");
    if (dims.size() != 1 || strides.size() != 1) Invalid(role + ": expected one dimension");
    if (dims[0] < 0) Invalid("attribute '" + role + "_dims': expected a size, got " + std::to_string(dims[0]));
    if (!IsRowMajor(dims, strides)) Unsupported(role + ": expected words side by side");
    return dims[0];
  }

  const Arithmetic& arithmetic_;
  int64_t count_ = 0;
};

const Family<Threefry, kOwnEverywhere> family("threefry2x32");

}  // namespace

}  // namespace hlo_dispatch::random
