// hlo_dispatch.own.sparse_product
//
//   dst[r, c] = sum over e with rows[e] = r of values[e] * src[columns[e], c]
//
// a sparse matrix, of which there are entries and where they are, times a dense one. Operands: values (E) and src
// (S, C), of f32 or f64; rows and columns (E), of s32, each of which may be a part of its buffer. Results: dst (R, C),
// and scratch. An entry whose row is outside of the result is left out; one whose column is outside of the source
// multiplies the nearest row ('outside' = 0), zeros (1), or NaN (2). With 'rows_wrap' or 'columns_wrap' indices below 0
// count from the end. Entries of one row are added up in their order, whatever the number of threads, each of which has
// rows of its own.
#include <algorithm>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/routine.h"
#include "common/strided_array.h"
#include "sparse/arithmetic.h"

namespace hlo_dispatch::sparse {

namespace {

// So many products, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 16;
// Where rows are in no order, each thread has so many of these parts of the result's rows, by how many entries they
// have.
constexpr int64_t kParts = 256;

const Arithmetic& ArithmeticHere() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

int64_t Flag(const Attributes& attributes, const std::string& name, int64_t most) {
  const int64_t value = attributes.Has(name) ? attributes.Integer(name) : 0;
  if (value >= 0 && value <= most) return value;
  Invalid("attribute '" + name + "': expected 0 to " + std::to_string(most) + ", got " + std::to_string(value));
}

StridedArray Read(const Attributes& attributes, const std::string& role, ElementType type, size_t rank) {
  StridedArray array{role, type, attributes.Integers(role + "_dims"), attributes.Integers(role + "_strides")};
  if (array.dims.size() != rank || array.strides.size() != rank) {
    Invalid(role + ": expected " + std::to_string(rank) + " dimensions, and a stride for each");
  }
  for (const int64_t size : array.dims) {
    if (size < 1) Invalid(role + ": expected elements, got a dimension of " + std::to_string(size));
  }
  Bytes(Elements(array.dims, role), ElementBytes(type), role);
  return array;
}

StridedArray ReadNumbers(const Attributes& attributes, const std::string& role, size_t rank) {
  const ElementType type = ElementTypeFromName(attributes.Text("type"), "type", Accepted::kSinglesAndDoubles);
  StridedArray array = Read(attributes, role, type, rank);
  if (!IsRowMajor(array.dims, array.strides)) Unsupported(role + ": expected row-major numbers");
  return array;
}

StridedArray ReadIndices(const Attributes& attributes, const std::string& role, int64_t entries) {
  StridedArray array = Read(attributes, role, ElementType::kS32, 1);
  if (array.dims[0] != entries) Invalid(role + ": expected as many as values");
  array.offset = attributes.Integer(role + "_offset");
  array.elements = attributes.Integer(role + "_elements");
  if (array.strides[0] < 1 || array.offset < 0 || array.elements < 1) {
    Invalid(role + ": expected a stride and elements, and an offset of at least 0");
  }
  Bytes(array.elements, ElementBytes(array.type), role);
  if (Extent(array.dims, array.strides, role) > array.elements - array.offset) {
    Invalid(role + ": expected indices within its buffer of " + std::to_string(array.elements) + " elements");
  }
  return array;
}

int64_t RowOf(const Places& rows, int64_t entry) {
  const int64_t index = rows.indices[entry * rows.stride];
  return rows.wraps && index < 0 ? index + rows.size : index;
}

class SparseProduct final : public Routine {
 public:
  SparseProduct(const Provider&, const Attributes& attributes)
      : values_(ReadNumbers(attributes, "values", 1)),
        rows_(ReadIndices(attributes, "rows", values_.dims[0])),
        columns_(ReadIndices(attributes, "columns", values_.dims[0])),
        source_(ReadNumbers(attributes, "src", 2)),
        destination_(ReadNumbers(attributes, "dst", 2)),
        rows_wrap_(Flag(attributes, "rows_wrap", 1) != 0),
        columns_wrap_(Flag(attributes, "columns_wrap", 1) != 0),
        outside_(static_cast<Outside>(Flag(attributes, "outside", 2))) {
    if (source_.dims[1] != destination_.dims[1]) Invalid("dst: expected the columns of src");
    operands_ = {SpecOf(values_), SpecOf(rows_), SpecOf(columns_), SpecOf(source_)};
    results_ = {SpecOf(destination_), PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("sparse_product:") + ArithmeticHere().name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto places = [&](const StridedArray& array, size_t operand, int64_t size, bool wraps) {
      return Places{static_cast<const int32_t*>(array.Begin(const_cast<void*>(buffers.operands[operand]))),
                    array.strides[0], size, wraps};
    };
    const Problem problem{buffers.operands[0],
                          places(rows_, 1, destination_.dims[0], rows_wrap_),
                          places(columns_, 2, source_.dims[0], columns_wrap_),
                          buffers.operands[3],
                          source_.dims[1],
                          outside_,
                          buffers.results[0]};
    const Arithmetic& arithmetic = ArithmeticHere();
    const Loops& loops = values_.type == ElementType::kF32 ? arithmetic.f32 : arithmetic.f64;
    const int64_t entries = values_.dims[0];
    const double work = static_cast<double>(entries) * static_cast<double>(problem.width);
    const int64_t threads = parallel.ThreadsFor(work, kMinPerThread);
    const bool ascending = AreAscending(problem.rows, entries);
    const std::vector<Part> parts =
        ascending ? PartsOfEntries(problem.rows, entries, threads) : PartsOfRows(problem.rows, entries, threads);
    parallel.For(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Part& part = parts[static_cast<size_t>(i)];
        loops.add(problem, part.first, part.last, part.begin, part.end, ascending);
      }
    });
  }

 private:
  // What one thread does: entries, and the rows of the result.
  struct Part {
    int64_t first, last, begin, end;
  };

  static bool AreAscending(const Places& rows, int64_t entries) {
    for (int64_t entry = 1; entry < entries; ++entry) {
      if (RowOf(rows, entry) < RowOf(rows, entry - 1)) return false;
    }
    return true;
  }

  // As many entries for each thread, but that those of one row are together.
  static std::vector<Part> PartsOfEntries(const Places& rows, int64_t entries, int64_t threads) {
    std::vector<Part> parts;
    int64_t first = 0, begin = 0;
    for (int64_t thread = 1; thread <= threads && first < entries; ++thread) {
      int64_t last = std::max(first, thread == threads ? entries : entries / threads * thread);
      while (last > 0 && last < entries && RowOf(rows, last) == RowOf(rows, last - 1)) ++last;
      const int64_t end = last < entries ? std::clamp(RowOf(rows, last), begin, rows.size) : rows.size;
      parts.push_back({first, last, begin, end});
      first = last, begin = end;
    }
    if (begin < rows.size) parts.push_back({first, entries, begin, rows.size});
    return parts;
  }

  // Rows with about as many entries for each thread, which looks through all of them.
  static std::vector<Part> PartsOfRows(const Places& rows, int64_t entries, int64_t threads) {
    if (threads == 1) return {{0, entries, 0, rows.size}};
    const int64_t size = (rows.size + kParts - 1) / kParts;
    std::vector<int64_t> counts(kParts, 0);
    for (int64_t entry = 0; entry < entries; ++entry) {
      const int64_t row = RowOf(rows, entry);
      if (row >= 0 && row < rows.size) ++counts[static_cast<size_t>(row / size)];
    }
    std::vector<Part> parts;
    int64_t begin = 0, found = 0;
    for (int64_t part = 0; part < kParts && begin < rows.size; ++part) {
      found += counts[static_cast<size_t>(part)];
      const int64_t end = std::min(rows.size, (part + 1) * size);
      if (part + 1 < kParts && found < entries / threads) continue;
      parts.push_back({0, entries, begin, end});
      begin = end, found = 0;
    }
    if (begin < rows.size) parts.push_back({0, entries, begin, rows.size});
    return parts;
  }

  StridedArray values_, rows_, columns_, source_, destination_;
  bool rows_wrap_, columns_wrap_;
  Outside outside_;
};

const Family<SparseProduct, kOwnEverywhere> family("sparse_product");

}  // namespace

}  // namespace hlo_dispatch::sparse
