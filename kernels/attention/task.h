// A block of queries of one batch element against all keys, or those of one split: what one thread does by itself.
#ifndef HLO_DISPATCH_ATTENTION_TASK_H_
#define HLO_DISPATCH_ATTENTION_TASK_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "attention/arithmetic.h"
#include "attention/problem.h"
#include "attention/tiling.h"
#include "common/routine.h"

namespace hlo_dispatch::attention {

inline Matrix From(const Matrix& matrix, int64_t row, int64_t column) {
  return {matrix.first + row * matrix.row_bytes + column * matrix.column_bytes, matrix.type, matrix.row_bytes,
          matrix.column_bytes};
}

// Contiguous rows in f32 or bf16, in the operand or copied.
struct Lines {
  const char* first;
  int64_t bytes;  // from one to the next
  Units units = Units::kF32;
};

// What all tasks of one call share.
struct Shared {
  const Problem& problem;
  const Arithmetic& arithmetic;
  Tiling tiling;
  bool is_direct;
  bool pairs;
  int64_t units;  // of a query or key
  float first_scale;
  size_t first_step;  // behind that scale
  const RoutineBuffers& buffers;
};

class Task {
 public:
  Task(const Shared& shared, int64_t batch, int64_t first_query, int64_t queries, int64_t first_key, int64_t last_key);

  void Run();
  // The result's rows, into its place.
  void Finish(const Matrix& destination) const;
  // Peak, total and sums of each row, for those of other splits to be added.
  void StorePartial(float* to) const;

 private:
  struct Range {
    int64_t begin, end;  // keys, counted from the block's first
  };
  struct Delete {
    void operator()(char* data) const { ::operator delete(data, std::align_val_t(64)); }
  };
  using Memory = std::unique_ptr<char, Delete>;

  template <typename Body>
  void ForPieces(const Body& body) const {
    for (int64_t row = 0; row < queries_; row += s_.tiling.at_once) {
      body(row, std::min(s_.tiling.at_once, queries_ - row));
    }
  }

  char* MemoryOf(int64_t bytes);

  // In f32, or in bf16 for pairs.
  Lines ContiguousRows(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch) const;
  // For few queries: f32 or bf16 in place. `whole`: the arithmetic reads whole vectors.
  Lines RowsInPlace(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch, bool whole) const;
  Lines Fetched(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch, int64_t units) const;

  // The keys and values of a block, as the arithmetic reads them.
  void Pack(int64_t first, int64_t last);
  // Keys of the block that some of these queries may see by causal steps, windows and masks, in whole vectors.
  Range VisibleKeys(int64_t row, int64_t rows, int64_t first, int64_t last) const;
  // From the first to the last key of the range that the mask shows to one of so many rows.
  static Range UnmaskedRange(const Matrix& mask, int64_t rows, const Range& range);
  // Keys that such steps hide are left out where that changes nothing: their weights would vanish beside
  // the others', and 0 times their values is 0.
  void SkipHiddenKeys();
  // Some queries against some keys of the block that is packed: whole vectors, but at the block's end.
  void Take(int64_t row, int64_t rows, int64_t first, int64_t last, const Range& range);
  // One panel of the block's values, packed or in place.
  Lines ValuesOf(int64_t panel, int64_t keys) const;
  void Apply(const Step& step, float* scores, int64_t row, int64_t key, int64_t count) const;

  const Shared& s_;
  const Arithmetic& a_;
  Panels panels_of_values_;
  int64_t first_query_, queries_, first_key_, last_key_;
  bool may_skip_;
  Matrix query_, key_, value_;
  std::vector<Matrix> others_;
  Lines queries_lines_{}, key_lines_{}, value_lines_{};  // the latter two where they are not packed
  int64_t score_stride_;
  float *query_room_, *keys_, *values_, *fetched_, *scores_, *sums_, *peaks_, *totals_, *factors_;
  Memory large_;
};

}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_TASK_H_
