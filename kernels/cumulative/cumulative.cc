// hlo_dispatch.own.cumulative_sum, .cumulative_product, .cumulative_maximum, .cumulative_minimum, .cumulative_logsumexp
//
//   dst[line, i, column] = src[line, 0, column] ∘ src[line, 1, column] ∘ ... ∘ src[line, i, column]
//
// or with 'reversed' src[line, i, column] ∘ ... ∘ src[line, length - 1, column], where ∘ is the operation. Operands:
// src (lines, length, columns), row-major, of f32, f64, s32 (not logsumexp), or s64 (sums and products). Results: dst,
// the same, and scratch. It takes about as long as reading and writing memory. Where lines lie one behind another, few
// and long ones are divided among threads: what a piece adds up to is known before the elements of the next one are
// written.
#include <algorithm>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "cumulative/arithmetic.h"

namespace hlo_dispatch::cumulative {

namespace {

// So many bytes, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 17;
// A piece is read twice: what it adds up to first.
constexpr double kMinPerPiece = 1 << 19;
// Columns that threads are given together: whole cache lines.
constexpr int64_t kLineBytes = 64;
constexpr size_t kDimensions = 3;

struct ElementKind {
  const char* name;
  Type type;
  xla::ffi::DataType in_buffers;
  int64_t bytes;
};
constexpr ElementKind kKinds[] = {{"f32", kF32, xla::ffi::F32, 4},
                                  {"f64", kF64, xla::ffi::F64, 8},
                                  {"s32", kS32, xla::ffi::S32, 4},
                                  {"s64", kS64, xla::ffi::S64, 8}};

const ElementKind& KindOf(const Attributes& attributes) {
  const std::string name = attributes.Text("type");
  for (const ElementKind& kind : kKinds) {
    if (name == kind.name) return kind;
  }
  Unsupported("attribute 'type': expected f32, f64, s32 or s64, got " + name);
}

void CheckRowMajor(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims) {
  const std::vector<int64_t> strides = attributes.Integers(role + "_strides");
  if (strides.size() != dims.size()) Invalid(role + ": expected a stride for each dimension");
  if (!IsRowMajor(dims, strides)) Unsupported(role + ": expected lines behind one another");
}

template <Operation operation>
class Cumulative final : public Routine {
 public:
  Cumulative(const Provider&, const Attributes& attributes)
      : kind_(KindOf(attributes)),
        arithmetic_(ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic)),
        loops_(arithmetic_.loops[operation][kind_.type]) {
    if (loops_.lines == nullptr) Unsupported(std::string("attribute 'type': not of ") + kind_.name);
    const std::vector<int64_t> dims = attributes.Integers("src_dims");
    if (dims.size() != kDimensions) Invalid("attribute 'src_dims': expected lines, their length, and columns");
    for (const int64_t size : dims) {
      if (size < 1) Invalid("attribute 'src_dims': expected elements, got a dimension of " + std::to_string(size));
    }
    if (attributes.Integers("dst_dims") != dims) Invalid("attribute 'dst_dims': expected those of src");
    for (const char* role : {"src", "dst"}) CheckRowMajor(attributes, role, dims);
    const int64_t reversed = attributes.Has("reversed") ? attributes.Integer("reversed") : 0;
    if (reversed != 0 && reversed != 1) {
      Invalid("attribute 'reversed': expected 0 or 1, got " + std::to_string(reversed));
    }
    lines_ = dims[0], length_ = dims[1], columns_ = dims[2], is_reversed_ = reversed != 0;
    bytes_ = Bytes(Elements(dims, "attribute 'src_dims'"), kind_.bytes, "attribute 'src_dims'");
    operands_ = {{"src", kind_.in_buffers, bytes_}};
    results_ = {{"dst", kind_.in_buffers, bytes_}, PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("cumulative:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const char*>(buffers.operands[0]);
    auto* to = static_cast<char*>(buffers.results[0]);
    const auto work = static_cast<double>(bytes_);
    const int64_t threads = parallel.ThreadsFor(work, kMinPerThread);
    if (columns_ > 1) return SideBySide(from, to, threads, parallel);
    const int64_t pieces = loops_.piece == nullptr ? 1 : parallel.ThreadsFor(work, kMinPerPiece);
    if (lines_ < pieces) return InPieces(from, to, pieces, parallel);
    const int64_t line_bytes = length_ * kind_.bytes;
    parallel.For(lines_, CeilOfRatio(lines_, threads), [&](int64_t begin, int64_t end) {
      loops_.lines(from + begin * line_bytes, end - begin, length_, is_reversed_, to + begin * line_bytes);
    });
  }

 private:
  void SideBySide(const char* from, char* to, int64_t threads, const Parallel& parallel) const {
    const int64_t least = std::min(columns_, kLineBytes / kind_.bytes);
    const int64_t parts = std::min(CeilOfRatio(threads, lines_), columns_ / least);
    const int64_t size = CeilOfRatio(CeilOfRatio(columns_, parts), least) * least;
    const int64_t first = is_reversed_ ? (length_ - 1) * columns_ : 0, distance = is_reversed_ ? -columns_ : columns_;
    parallel.For(lines_ * parts, CeilOfRatio(lines_ * parts, threads), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % parts * size, count = std::min(size, columns_ - column);
        if (count <= 0) continue;
        const int64_t offset = (i / parts * length_ * columns_ + first + column) * kind_.bytes;
        loops_.columns(from + offset, length_, count, distance, to + offset);
      }
    });
  }

  // Lines of which each is divided, one after the other.
  void InPieces(const char* from, char* to, int64_t threads, const Parallel& parallel) const {
    const int64_t size = CeilOfRatio(length_, threads), pieces = CeilOfRatio(length_, size);
    std::vector<Carry> carries(static_cast<size_t>(pieces));
    for (int64_t line = 0; line < lines_; ++line) {
      const auto piece = [&](int64_t number, bool writes) {
        const int64_t before = number * size, count = std::min(size, length_ - before);
        const int64_t place = line * length_ + (is_reversed_ ? length_ - before - count : before);
        const int64_t offset = place * kind_.bytes;
        loops_.piece(from + offset, count, is_reversed_, &carries[static_cast<size_t>(number)],
                     writes ? to + offset : nullptr);
      };
      for (Carry& carry : carries) loops_.start(&carry);
      parallel.For(pieces - 1, 1, [&](int64_t begin, int64_t end) {
        for (int64_t number = begin; number < end; ++number) piece(number, false);
      });
      Carry total;
      loops_.start(&total);
      for (Carry& carry : carries) {
        const Carry following = carry;
        carry = total;
        loops_.merge(&total, &following);
      }
      parallel.For(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t number = begin; number < end; ++number) piece(number, true);
      });
    }
  }

  struct alignas(8) Carry {
    char bytes[kCarryBytes];
  };

  const ElementKind& kind_;
  const Arithmetic& arithmetic_;
  const Loops& loops_;
  int64_t lines_ = 0, length_ = 0, columns_ = 0, bytes_ = 0;
  bool is_reversed_ = false;
};

const Family<Cumulative<kAdd>, kOwnEverywhere> sum("cumulative_sum");
const Family<Cumulative<kMultiply>, kOwnEverywhere> product("cumulative_product");
const Family<Cumulative<kMaximum>, kOwnEverywhere> maximum("cumulative_maximum");
const Family<Cumulative<kMinimum>, kOwnEverywhere> minimum("cumulative_minimum");
const Family<Cumulative<kLogAddExp>, kOwnEverywhere> logsumexp("cumulative_logsumexp");

}  // namespace

}  // namespace hlo_dispatch::cumulative
