// One attention as a call's attributes describe it: four strided operands and what is done to the scores.
#ifndef HLO_DISPATCH_ATTENTION_PROBLEM_H_
#define HLO_DISPATCH_ATTENTION_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "attention/arithmetic.h"
#include "common/attributes.h"
#include "common/routine.h"
#include "common/strided_array.h"

namespace hlo_dispatch::attention {

inline Matrix BlockAt(const Matrix& matrix, int64_t row, int64_t column) {
  return {matrix.first + row * matrix.row_bytes + column * matrix.column_bytes, matrix.type, matrix.row_bytes,
          matrix.column_bytes};
}

// Matrices of a batch. A stride may be 0: the same elements again, for heads that share keys or masks that repeat.
struct Operand : StridedArray {
  int64_t rows() const { return dims[dims.size() - 2]; }
  int64_t columns() const { return dims.back(); }
  // The matrix of one batch element, counted through all batch dimensions.
  Matrix At(const void* buffer, int64_t batch) const;
};

// An addend of this size absorbs every usual score: it hides a key.
constexpr float kAbsorbing = -1e30f;
// What such an addend makes of a score, at most.
constexpr float kAbsorbed = -5e29f;

enum class StepKind { kScale, kAdd, kSelect, kCausal, kWindow, kSoftcap };

struct Step {
  StepKind kind;
  float value = 0;        // scale, cap, or the score, at most, where the step hides a key
  int64_t reach = 0;      // causal: the offset; window: how many keys, the query's own included
  size_t operand = 0;     // add, select: which of Problem::others
  bool may_skip = false;  // whether the scores of keys that it hides are known to be at most Problem::hidden
};

struct Problem {
  explicit Problem(const Attributes& attributes);

  Operand query, key, value, destination;
  std::vector<Operand> others;
  std::vector<Step> steps;
  int64_t batch = 1;  // of all batch dimensions together

  int64_t queries() const { return query.rows(); }
  int64_t keys() const { return key.rows(); }
  int64_t depth() const { return query.columns(); }
  int64_t width() const { return value.columns(); }
  // The steps' operands in one batch element.
  std::vector<Matrix> OthersAt(const RoutineBuffers& buffers, int64_t batch) const;

  // Whether there are steps of which that is known.
  bool may_skip = false;
  float hidden = 0;
  // The rows are heads that share their keys, of one query each: causal steps and windows see it as number 0.
  bool is_one_query = false;

 private:
  void MakeRowsOfHeads();
};

}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_PROBLEM_H_
