// hlo_dispatch.own.integer_product
//
//   dst[b.., m, n] = sum over k of src[b.., m, k] * weights[b.., k, n], modulo 2 to the power of its bits
//
// Products of integers whose result stays integer, exact as stock's: s8, u8, s16 and s32, and a result of any of them.
// Numbers of up to 16 bits are multiplied in pairs. A batch dimension of one is broadcast. Operands: src, weights.
// Results: dst, scratch.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "integer_product/arithmetic.h"

namespace hlo_dispatch::integer_product {

namespace {

// So many multiply-adds, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 19;
// Packed operands may take so many times their memory, and this much besides.
constexpr int64_t kMostCopies = 4, kSmallCopies = 1 << 20;
// Rows whose copies a thread makes at once.
constexpr int64_t kRowsOfBlock = 8 * kRows;

const Arithmetic& BestArithmetic() {
  if (HasAvx512Vnni()) return avx512_vnni::kArithmetic;
  return HasAvx2() ? avx2::kArithmetic : plain::kArithmetic;
}

// One matrix of a batch, (rows, columns), where the k-th row or column is what is summed up.
struct Matrix {
  const void* begin;
  ElementType type;
  int64_t row_stride, column_stride;
};

// Calls visit with a pointer to the elements.
template <typename Visit>
void WithElements(const Matrix& matrix, Visit visit) {
  switch (matrix.type) {
    case ElementType::kS8:
      return visit(static_cast<const int8_t*>(matrix.begin));
    case ElementType::kU8:
      return visit(static_cast<const uint8_t*>(matrix.begin));
    case ElementType::kS16:
      return visit(static_cast<const int16_t*>(matrix.begin));
    default:
      return visit(static_cast<const int32_t*>(matrix.begin));
  }
}

class IntegerProduct final : public Routine {
 public:
  IntegerProduct(const Provider&, const Attributes& attributes)
      : source_(Read(attributes, "src")),
        weights_(Read(attributes, "weights")),
        destination_(Read(attributes, "dst")),
        arithmetic_(BestArithmetic()) {
    const size_t rank = destination_.dims.size();
    for (const StridedArray* array : {&source_, &weights_}) {
      if (rank < 2 || array->dims.size() != rank) {
        Invalid(array->role + ": expected as many dimensions as dst (" + std::to_string(rank) +
                ") and at least 2, got " + std::to_string(array->dims.size()));
      }
      for (size_t i = 0; i + 2 < rank; ++i) {
        if (array->dims[i] == destination_.dims[i] || array->dims[i] == 1) continue;
        Invalid(array->role + ": expected dst's " + std::to_string(destination_.dims[i]) +
                " elements or 1 in dimension " + std::to_string(i) + ", got " + std::to_string(array->dims[i]));
      }
    }
    if (destination_.elements > 0) Invalid("dst: expected a whole buffer, got a part of one");
    rows_ = destination_.dims[rank - 2];
    columns_ = destination_.dims[rank - 1];
    depth_ = source_.dims[rank - 1];
    CheckEqual("rows of src", rows_, source_.dims[rank - 2]);
    CheckEqual("rows of weights", depth_, weights_.dims[rank - 2]);
    CheckEqual("columns of weights", columns_, weights_.dims[rank - 1]);
    if (attributes.Has("bias_type") || attributes.Has("post_op_0")) {
      Unsupported("own.integer_product has neither bias nor post-ops");
    }
    if (attributes.Has("weights_format") && attributes.Text("weights_format") == "packed") {
      Unsupported("own.integer_product reads weights as they lie");
    }
    for (size_t i = 0; i + 2 < rank; ++i) batch_ = Product(batch_, destination_.dims[i], "dst_dims");
    // What is packed, of either operand and with its last panel filled up.
    const int64_t packed = Product(Sum(std::max(rows_, columns_), kColumns, "dst_dims"), depth_ + 1, "src_dims");
    Bytes(Product(batch_, packed, "dst_dims"), sizeof(int32_t), "weights");
    is_paired_ = ElementBytes(source_.type) <= 2 && ElementBytes(weights_.type) <= 2;
    // Of few columns and many rows the transposed product is computed.
    is_transposed_ = columns_ < kColumns && columns_ < rows_;
    // Of a narrow product with a great depth, panels that are nearly all padding would take many times the operands'
    // memory.
    const int64_t held = Product(batch_ * RoundUpTo(is_transposed_ ? rows_ : columns_, kColumns), Words(), "src_dims");
    if (held * int64_t{sizeof(int32_t)} > kMostCopies * (source_.Bytes() + weights_.Bytes()) + kSmallCopies) {
      Unsupported("own.integer_product: its copies of the operands would take many times their memory");
    }
    operands_ = {SpecOf(source_), SpecOf(weights_)};
    results_ = {SpecOf(destination_), PlannedScratch(attributes)};
  }

  std::string implementation() const override {
    return std::string("integers:") + arithmetic_.name + (is_paired_ ? ":pairs" : ":words");
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const int64_t rows = is_transposed_ ? columns_ : rows_, columns = is_transposed_ ? rows_ : columns_;
    const int64_t panels = CeilOfRatio(columns, kColumns), blocks = CeilOfRatio(rows, kRowsOfBlock), words = Words();
    const std::unique_ptr<int32_t[]> packed(new int32_t[static_cast<size_t>(batch_ * panels * words * kColumns)]);
    const auto work = static_cast<double>(batch_ * rows) * static_cast<double>(columns * depth_);
    const int64_t threads = parallel.ThreadsFor(work, kMinPerThread);
    parallel.For(batch_ * panels, CeilOfRatio(batch_ * panels, threads), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % panels * kColumns;
        Pack(Right(buffers, i / panels), first, std::min(kColumns, columns - first), /*line=*/1, /*next=*/kColumns,
             kColumns, packed.get() + i * words * kColumns);
      }
    });
    // Pieces of few panels where there are too few blocks of rows.
    const int64_t across = std::min(panels, CeilOfRatio(4 * threads, batch_ * blocks));
    const int64_t width = CeilOfRatio(panels, threads == 1 ? 1 : across), pieces = CeilOfRatio(panels, width);
    const int64_t items = batch_ * blocks * pieces;
    parallel.For(items, threads == 1 ? items : 1, [&](int64_t begin, int64_t end) {
      const std::unique_ptr<int32_t[]> left(new int32_t[static_cast<size_t>(kRowsOfBlock * words)]);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t number = i / pieces / blocks, row = i / pieces % blocks * kRowsOfBlock,
                      panel = i % pieces * width;
        const int64_t count = std::min(kRowsOfBlock, rows - row);
        Pack(Left(buffers, number), row, count, /*line=*/words, /*next=*/1, RoundUpTo(count, kRows), left.get());
        for (int64_t j = panel; j < std::min(panels, panel + width); ++j) {
          const int32_t* const right = packed.get() + (number * panels + j) * words * kColumns;
          for (int64_t r = 0; r < count; r += kRows) {
            alignas(64) int32_t sums[kRows * kColumns];
            (is_paired_ ? arithmetic_.pairs : arithmetic_.words)(left.get() + r * words, words, right, words, sums);
            Write(buffers, number, sums, row + r, std::min(kRows, count - r), j * kColumns,
                  std::min(kColumns, columns - j * kColumns));
          }
        }
      }
    });
  }

 private:
  static StridedArray Read(const Attributes& attributes, const std::string& role) {
    return ReadArray(attributes, role, Accepted::kIntegers);
  }

  static void CheckEqual(const std::string& what, int64_t expected, int64_t got) {
    if (expected != got) Invalid(what + ": expected " + std::to_string(expected) + ", got " + std::to_string(got));
  }

  // Of a row or column that is summed up.
  int64_t Words() const { return is_paired_ ? CeilOfRatio(depth_, int64_t{2}) : depth_; }

  // Elements in front of one matrix of the batch.
  int64_t Before(const StridedArray& array, int64_t number) const {
    int64_t before = 0;
    for (size_t i = array.dims.size() - 2; i-- > 0;) {
      if (array.dims[i] > 1) before += number % destination_.dims[i] * array.strides[i];
      number /= destination_.dims[i];
    }
    return before;
  }

  Matrix MatrixOf(const StridedArray& array, const void* buffer, int64_t number, bool is_transposed) const {
    const char* const begin = static_cast<const char*>(array.Begin(const_cast<void*>(buffer)));
    const int64_t row = array.strides[array.dims.size() - 2], column = array.strides.back();
    return {begin + Before(array, number) * ElementBytes(array.type), array.type, is_transposed ? column : row,
            is_transposed ? row : column};
  }

  // With what is summed up in columns.
  Matrix Left(const RoutineBuffers& buffers, int64_t number) const {
    return is_transposed_ ? MatrixOf(weights_, buffers.operands[1], number, /*is_transposed=*/true)
                          : MatrixOf(source_, buffers.operands[0], number, /*is_transposed=*/false);
  }
  Matrix Right(const RoutineBuffers& buffers, int64_t number) const {
    return is_transposed_ ? MatrixOf(source_, buffers.operands[0], number, /*is_transposed=*/false)
                          : MatrixOf(weights_, buffers.operands[1], number, /*is_transposed=*/true);
  }

  // Lines [first, first + count) of a matrix as words, which lie `next` apart in `to`, lines `line` apart; zeros up to
  // `lines`, and behind what is summed up.
  void Pack(const Matrix& matrix, int64_t first, int64_t count, int64_t line, int64_t next, int64_t lines,
            int32_t* to) const {
    const int64_t words = Words();
    WithElements(matrix, [&](const auto* begin) {
      for (int64_t i = 0; i < count; ++i) {
        const auto* const from = begin + (first + i) * matrix.row_stride;
        int32_t* const word = to + i * line;
        const int64_t step = matrix.column_stride;
        if (!is_paired_) {
          for (int64_t k = 0; k < depth_; ++k) word[k * next] = static_cast<int32_t>(from[k * step]);
          continue;
        }
        const auto pair = [](auto low, auto high) {
          return static_cast<int32_t>(static_cast<uint16_t>(low) | static_cast<uint32_t>(static_cast<uint16_t>(high))
                                                                       << 16);
        };
        for (int64_t k = 0; k < depth_ / 2; ++k) word[k * next] = pair(from[2 * k * step], from[(2 * k + 1) * step]);
        if (depth_ % 2 != 0) word[(words - 1) * next] = pair(from[(depth_ - 1) * step], 0);
      }
    });
    for (int64_t i = count; i < lines; ++i) {
      for (int64_t k = 0; k < words; ++k) to[i * line + k * next] = 0;
    }
  }

  void Write(const RoutineBuffers& buffers, int64_t number, const int32_t* sums, int64_t row, int64_t rows,
             int64_t column, int64_t columns) const {
    Matrix matrix = MatrixOf(destination_, buffers.results[0], number, is_transposed_);
    WithElements(matrix, [&](const auto* begin) {
      using Element = std::remove_const_t<std::remove_pointer_t<decltype(begin)>>;
      auto* const to = const_cast<Element*>(begin);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          to[(row + r) * matrix.row_stride + (column + c) * matrix.column_stride] =
              static_cast<Element>(sums[r * kColumns + c]);
        }
      }
    });
  }

  StridedArray source_, weights_, destination_;
  const Arithmetic& arithmetic_;
  int64_t batch_ = 1, rows_ = 0, columns_ = 0, depth_ = 0;
  bool is_paired_ = false, is_transposed_ = false;
};

const Family<IntegerProduct, kOwnEverywhere> family("integer_product");

}  // namespace

}  // namespace hlo_dispatch::integer_product
