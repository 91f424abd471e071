// Tiling of an attention.
#ifndef HLO_DISPATCH_ATTENTION_TILING_H_
#define HLO_DISPATCH_ATTENTION_TILING_H_

#include <cstdint>

#include "attention/arithmetic.h"
#include "attention/problem.h"
#include "common/rounding.h"

namespace hlo_dispatch::attention {

// Columns in panels as even as possible, whole vectors each: the first ones may be a vector wider.
class Panels {
 public:
  Panels(int64_t columns, const Arithmetic& arithmetic)
      : lanes_(arithmetic.lanes),
        vectors_(CeilOfRatio(columns, lanes_)),
        count_(CeilOfRatio(vectors_, arithmetic.max_vectors)) {}

  int64_t count() const { return count_; }
  int64_t padded() const { return vectors_ * lanes_; }
  // In front of a panel; of number count() all of them.
  int64_t Begin(int64_t panel) const { return BeginVector(panel) * lanes_; }
  int64_t Vectors(int64_t panel) const { return BeginVector(panel + 1) - BeginVector(panel); }
  // The panel that a column is in.
  int64_t Of(int64_t column) const {
    const int64_t vector = column / lanes_, wide = vectors_ % count_, narrow = vectors_ / count_;
    return vector < wide * (narrow + 1) ? vector / (narrow + 1) : wide + (vector - wide * (narrow + 1)) / narrow;
  }

 private:
  int64_t BeginVector(int64_t panel) const {
    const int64_t wide = vectors_ % count_;
    return panel * (vectors_ / count_) + (panel < wide ? panel : wide);
  }

  int64_t lanes_, vectors_, count_;
};

struct Tiling {
  int64_t keys;             // of a block, which is packed in the second-level cache
  int64_t queries;          // of a task
  int64_t tile_queries;     // queries of a task whose scores exist at one time
  int64_t tasks_per_batch;  // blocks of queries
  int64_t splits;           // parts of the keys, where there are fewer blocks of queries than threads
};

// Whether there are so few queries that keys and values are read in place: packing them would take longer.
bool IsDirect(const Problem& problem);

Tiling TilingOf(const Problem& problem, const Arithmetic& arithmetic, int64_t threads);

}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_TILING_H_
