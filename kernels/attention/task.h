// Task of one thread: a block of queries of one batch element against all keys, or those of one split.
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
#include "attention/visible_keys.h"
#include "common/routine.h"

namespace hlo_dispatch::attention {

// Contiguous rows in f32 or bf16, in the operand or copied.
struct Rows {
  const char* first;
  int64_t bytes;  // from one to the next
  Units units = Units::kF32;
};

// State that all tasks of one call share.
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
  Task(const Shared& shared, int64_t batch, int64_t first_query, int64_t queries, KeyRange keys);

  void Run();
  // Normalizes and stores the result's rows.
  void Finish(const Matrix& destination) const;
  // Running maximum, sum and unnormalized result of each row, to be combined with other splits'.
  void StorePartial(float* to) const;

 private:
  struct Delete {
    void operator()(char* data) const { ::operator delete(data, std::align_val_t(64)); }
  };
  using Memory = std::unique_ptr<char, Delete>;

  template <typename Body>
  void ForTiles(const Body& body) const {
    for (int64_t row = 0; row < queries_; row += s_.tiling.tile_queries) {
      body(row, std::min(s_.tiling.tile_queries, queries_ - row));
    }
  }

  char* MemoryOf(int64_t bytes);

  // In f32, or in bf16 for pairs.
  Rows ContiguousRows(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch) const;
  // For few queries: f32 or bf16 in place. `whole`: the arithmetic reads whole vectors.
  Rows RowsInPlace(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch, bool whole) const;
  Rows CopiedRows(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch, int64_t units) const;

  // Packs the keys and values of a block in panels.
  void PackPanels(int64_t first, int64_t last);
  // The keys of [first, last) that some of these rows see, counted from `first`; all of a split's.
  KeyRange Visible(int64_t row, int64_t rows, int64_t first, int64_t last) const;
  // Attends to the keys that were left out, where their weights would not vanish beside the others'.
  void AttendHidden();
  // One step of the online softmax: a tile of queries against a range of keys of the packed block, whole vectors but at
  // the block's end.
  void AttendTile(int64_t row, int64_t rows, int64_t first, int64_t last, const KeyRange& range);
  // One panel of the block's values, packed or in place.
  Rows ValuesOf(int64_t panel, int64_t keys) const;
  void Apply(const Step& step, float* scores, int64_t row, int64_t key, int64_t count) const;

  const Shared& s_;
  const Arithmetic& a_;
  Panels value_panels_;
  int64_t first_query_, queries_;
  KeyRange key_range_;
  bool may_skip_;
  Matrix query_, key_, value_;
  std::vector<Matrix> others_;
  Rows query_rows_{}, key_rows_{}, value_rows_{};  // the latter two where they are not packed
  int64_t score_stride_;
  float *query_copy_, *keys_, *values_, *copied_rows_, *scores_, *sums_, *peaks_, *totals_, *factors_;
  Memory large_;
};

}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_TASK_H_
