// The chain post_op_0, post_op_1, ... of a call: what oneDNN applies to the result before storing it.
#ifndef HLO_DISPATCH_ONEDNN_POST_OPS_H_
#define HLO_DISPATCH_ONEDNN_POST_OPS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/attributes.h"
#include "onednn/library.h"
#include "onednn/memory.h"

namespace hlo_dispatch::onednn {

struct PostOpChain {
  OwnedPostOps post_ops;
  // The binary post-ops' second operands, with the index under which execution expects each.
  std::vector<std::pair<int, Tensor>> operands;
  // Whether there is an in-place sum post-op.
  bool sums_in_place = false;
};

// Reads and builds the chain; every binary operand must have the result's dimensions `dims`, or 1 where it repeats.
// With `add_unit_dimension` the primitive's result has one dimension more than the call's, and so have the operands.
// The first `skipped` are left out: the primitive computes them itself. One of the kind sum, which has no operand, is
// allowed with attribute `accumulated`, which members of call groups may have. Operands of f16 are widened, if the
// primitive's own are.
PostOpChain ReadPostOps(const Attributes& attributes, const std::vector<int64_t>& dims, bool add_unit_dimension,
                        int skipped = 0, bool widens = false);

// A post-op that a primitive computes itself.
struct BinaryPostOp {
  Algorithm algorithm;
  Tensor operand;
};

// Throws unless there is a post-op of this name, and it has an operand.
BinaryPostOp ReadBinaryPostOp(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims);

// Primitive attributes every kernel uses: this chain, a scratchpad given by the caller, and strict arithmetic
// (an environment variable of oneDNN could otherwise make f32 run as bf16 behind the user's back).
OwnedAttributes MakePrimitiveAttributes(const PostOpChain& chain);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_POST_OPS_H_
