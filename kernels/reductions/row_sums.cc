// hlo_dispatch.own.row_sums
//
//   dst[row] = f( sum over k of t(src[row, k]) )
//
// where t is what the attribute 'of' says, values or squares, and f is the square root where 'root' is 1.
// Operands: src (rows..., N), f32, f64 or bf16, row-major. Results: dst (src's dimensions without the last), of src's
// type or, of bf16, of f32, and scratch. Some thousand numbers are added up in src's type (f32 of bf16), their sums in
// f64. The order of additions depends on N alone.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/halves.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "reductions/sums.h"

namespace hlo_dispatch::reductions {

namespace {

// Bytes that are worth waking a thread for.
constexpr double kMinPerThread = 1 << 18;
// Numbers of a row that one thread adds up.
constexpr int64_t kPiece = 1 << 15;
// Pieces of work for each thread, since the others come later than this one.
constexpr int64_t kShares = 4;

const SumArithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kSumArithmetic, avx2::kSumArithmetic, avx512::kSumArithmetic);
}

SumType TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return kSumF32;
    case ElementType::kF64:
      return kSumF64;
    case ElementType::kBF16:
      return kSumBF16;
    default:
      Unsupported("src: expected f32, f64 or bf16");
  }
}

Term TermOf(const std::string& name) {
  if (name == "values") return kValues;
  if (name == "squares") return kSquares;
  Invalid("attribute 'of': expected values or squares, got '" + name + "'");
}

class RowSums final : public Routine {
 public:
  RowSums(const Provider&, const Attributes& attributes)
      : source_(ReadArray(attributes, "src", Accepted::kNumbers)),
        destination_type_(ElementTypeFromName(attributes.Text("dst_type"), "dst_type", Accepted::kNumbers)),
        arithmetic_(BestArithmetic()),
        sum_(arithmetic_.sum[TypeOf(source_.type)][TermOf(attributes.Text("of"))]) {
    const int64_t root = attributes.Integer("root");
    if (root != 0 && root != 1) Invalid("attribute 'root': expected 0 or 1, got " + std::to_string(root));
    has_root_ = root == 1;
    if (source_.dims.empty()) Invalid("src: expected at least one dimension");
    columns_ = source_.dims.back();
    const std::vector<int64_t> rows(source_.dims.begin(), source_.dims.end() - 1);
    // No dimension is left of one row.
    if (attributes.Integers("dst_dims") != rows) Invalid("attribute 'dst_dims': expected those of src but the last");
    if (!IsRowMajor(rows, attributes.Integers("dst_strides"))) Unsupported("dst: expected sums side by side");
    const bool is_wider = source_.type == ElementType::kBF16 && destination_type_ == ElementType::kF32;
    if (destination_type_ != source_.type && !is_wider) Unsupported("dst: expected src's type");
    if (source_.BufferBytes() != source_.Bytes()) Unsupported("src: expected the whole of its buffer");
    if (!IsRowMajor(source_.dims, source_.strides)) Unsupported("src: expected rows behind one another");
    rows_ = Elements(rows, "dst");
    if (rows_ < 1 || columns_ < 1) Unsupported("src: expected elements");
    operands_ = {SpecOf(source_)};
    results_ = {BufferSpec{"dst", DataTypeOf(destination_type_), rows_ * ElementBytes(destination_type_)},
                PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("row_sums:") + arithmetic_.name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* from = static_cast<const char*>(buffers.operands[0]);
    const int64_t bytes = ElementBytes(source_.type), pieces = CeilOfRatio(columns_, kPiece), count = rows_ * pieces;
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(source_.Bytes()), kMinPerThread);
    const int64_t grain = CeilOfRatio(count, threads == 1 ? 1 : kShares * threads);
    if (pieces == 1) {
      return parallel.For(rows_, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          Write(sum_(from + row * columns_ * bytes, columns_), buffers.results[0], row);
        }
      });
    }
    std::vector<double> sums(static_cast<size_t>(count));
    parallel.For(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % pieces * kPiece;
        const char* piece = from + (i / pieces * columns_ + first) * bytes;
        sums[static_cast<size_t>(i)] = sum_(piece, std::min(kPiece, columns_ - first));
      }
    });
    for (int64_t row = 0; row < rows_; ++row) {
      double total = 0;
      for (int64_t piece = 0; piece < pieces; ++piece) total += sums[static_cast<size_t>(row * pieces + piece)];
      Write(total, buffers.results[0], row);
    }
  }

 private:
  void Write(double sum, void* to, int64_t row) const {
    const double found = has_root_ ? std::sqrt(sum) : sum;
    if (destination_type_ == ElementType::kF64) {
      static_cast<double*>(to)[row] = found;
    } else {
      StoreNarrowed(static_cast<float>(found), destination_type_, to, row);
    }
  }

  StridedArray source_;
  ElementType destination_type_;
  const SumArithmetic& arithmetic_;
  double (*sum_)(const void* from, int64_t count);
  bool has_root_ = false;
  int64_t rows_ = 0, columns_ = 0;
};

const Family<RowSums, kOwnEverywhere> family("row_sums");

}  // namespace

}  // namespace hlo_dispatch::reductions
