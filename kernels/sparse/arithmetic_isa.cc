// Rows of the source, scaled and added up, the sums in registers as long as they are of one row.
#include <cstdint>

#include "common/vectors.h"
#include "sparse/arithmetic.h"

namespace hlo_dispatch::sparse {
namespace {

// The source's rows of entries so far ahead are fetched: where they are is not to be foreseen.
constexpr int64_t kAhead = 8;
constexpr int64_t kMostLinesAhead = 8;
// Entries of one row that are added up at once: what was fetched for them is still in the first cache.
constexpr int64_t kMostAtOnce = 32;
// Vectors of sums that are in registers.
constexpr int kVectorsAtOnce = 4;

HLO_DISPATCH_INLINE int64_t IndexOf(const Places& places, int64_t entry) {
  const int64_t index = places.indices[entry * places.stride];
  return places.wraps && index < 0 ? index + places.size : index;
}

template <typename T>
struct Rows {
  typedef T Number __attribute__((may_alias));

  const Problem& problem;
  const Number* values;
  const Number* source;
  Number* result;

  explicit HLO_DISPATCH_INLINE Rows(const Problem& given)
      : problem(given),
        values(static_cast<const Number*>(given.values)),
        source(static_cast<const Number*>(given.source)),
        result(static_cast<Number*>(given.result)) {}

  // The row of the source that an entry is multiplied by; null: `outside` is.
  HLO_DISPATCH_INLINE const Number* SourceOf(int64_t entry) const {
    int64_t column = IndexOf(problem.columns, entry);
    if (column < 0 || column >= problem.columns.size) {
      if (problem.outside != Outside::kNearest) return nullptr;
      column = column < 0 ? 0 : problem.columns.size - 1;
    }
    return source + column * problem.width;
  }

  HLO_DISPATCH_INLINE T Filling() const { return problem.outside == Outside::kNan ? T(__builtin_nan("")) : T(0); }

  HLO_DISPATCH_INLINE void FetchLines(const Number* row) const {
    const auto* from = reinterpret_cast<const char*>(row);
    const int64_t bytes = problem.width * static_cast<int64_t>(sizeof(T));
    const int64_t most = bytes < kMostLinesAhead * kLine ? bytes : kMostLinesAhead * kLine;
    for (int64_t offset = 0; offset < most; offset += kLine) __builtin_prefetch(from + offset);
  }

  // The row of the source, and with rows in no order the result's, if that is among [begin, end).
  HLO_DISPATCH_INLINE void Fetch(int64_t entry, int64_t begin, int64_t end, bool ascending) const {
    if (!ascending) {
      const int64_t row = IndexOf(problem.rows, entry);
      if (row < begin || row >= end) return;
      FetchLines(result + row * problem.width);
    }
    const Number* row = SourceOf(entry);
    if (row != nullptr) FetchLines(row);
  }

  // The entries [first, behind), all of one row, added to kVectors vectors of it, as often as there are so many.
  template <int kBytes, int kVectors>
  HLO_DISPATCH_INLINE void AddVectors(int64_t first, int64_t behind, Number* to, bool is_new, int64_t& at) const {
    typedef T Vector __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
    constexpr int64_t kInVector = kBytes / static_cast<int64_t>(sizeof(T));
    for (; at + kVectors * kInVector <= problem.width; at += kVectors * kInVector) {
      AddOnce<Vector, kInVector, kVectors>(first, behind, to, is_new, at);
    }
  }

  template <typename Vector, int64_t kInVector, int kVectors>
  HLO_DISPATCH_INLINE void AddOnce(int64_t first, int64_t behind, Number* to, bool is_new, int64_t at) const {
    Vector sums[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      sums[i] = is_new ? Vector{} : *reinterpret_cast<const Vector*>(to + at + i * kInVector);
    }
    for (int64_t entry = first; entry < behind; ++entry) {
      const Number* row = SourceOf(entry);
      const T value = values[entry];
      for (int i = 0; i < kVectors; ++i) {
        const Vector factor =
            row == nullptr ? Vector{} + Filling() : *reinterpret_cast<const Vector*>(row + at + i * kInVector);
        sums[i] += value * factor;
      }
    }
    for (int i = 0; i < kVectors; ++i) *reinterpret_cast<Vector*>(to + at + i * kInVector) = sums[i];
  }

  HLO_DISPATCH_INLINE void AddRow(int64_t first, int64_t behind, Number* to, bool is_new) const {
    int64_t at = 0;
    AddVectors<kVectorBytes, kVectorsAtOnce>(first, behind, to, is_new, at);
    AddVectors<kVectorBytes, 1>(first, behind, to, is_new, at);
    if constexpr (kVectorBytes > 32) AddVectors<32, 1>(first, behind, to, is_new, at);
    if constexpr (kVectorBytes > 16) AddVectors<16, 1>(first, behind, to, is_new, at);
    for (; at < problem.width; ++at) {
      T sum = is_new ? T(0) : to[at];
      for (int64_t entry = first; entry < behind; ++entry) {
        const Number* row = SourceOf(entry);
        sum += values[entry] * (row == nullptr ? Filling() : row[at]);
      }
      to[at] = sum;
    }
  }
};

template <typename T>
void Add(const Problem& problem, int64_t first, int64_t last, int64_t begin, int64_t end, bool ascending) {
  const Rows<T> rows(problem);
  int64_t next = begin;  // the first row without a value
  const auto clear = [&](int64_t until) {
    for (int64_t i = next * problem.width; i < until * problem.width; ++i) rows.result[i] = T(0);
    next = until;
  };
  if (!ascending) clear(end);
  int64_t entry = first;
  while (entry < last) {
    const int64_t row = IndexOf(problem.rows, entry);
    int64_t behind = entry + 1;
    if (entry + kAhead < last) rows.Fetch(entry + kAhead, begin, end, ascending);
    if (row < begin || row >= end) {
      entry = behind;
      continue;
    }
    while (behind < last && behind < entry + kMostAtOnce && IndexOf(problem.rows, behind) == row) {
      if (behind + kAhead < last) rows.Fetch(behind + kAhead, begin, end, ascending);
      ++behind;
    }
    const bool is_new = row >= next;
    if (is_new) clear(row);
    rows.AddRow(entry, behind, rows.result + row * problem.width, is_new);
    if (is_new) next = row + 1;
    entry = behind;
  }
  clear(next > end ? next : end);
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, {Add<float>}, {Add<double>}};
}

}  // namespace hlo_dispatch::sparse
