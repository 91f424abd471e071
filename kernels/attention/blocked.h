// Attention in blocks: some queries against some keys at a time, with the running maximum and sum of each query, so
// that the scores never leave the cache. On XLA's thread pool, or in a
// call group on oneDNN's threads.
#ifndef HLO_DISPATCH_ATTENTION_BLOCKED_H_
#define HLO_DISPATCH_ATTENTION_BLOCKED_H_

#include "attention/arithmetic.h"
#include "attention/problem.h"
#include "common/parallel.h"
#include "common/routine.h"

namespace hlo_dispatch::attention {

// The best that this process may use.
const Arithmetic& BestArithmetic();

// Whether products are of bf16 as they are; else everything is f32 in between.
bool TakesPairs(const Problem& problem, const Arithmetic& arithmetic);

void Attend(const Problem& problem, const Arithmetic& arithmetic, const RoutineBuffers& buffers,
            const Parallel& parallel);

}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_BLOCKED_H_
