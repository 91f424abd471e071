// LAPACK calls of JAX's that no kernel of ours computes, because JAX itself is no slower: pivoted QR, products with Q,
// SVD by QR iteration, eigenvalues and Schur forms of general matrices, Hessenberg and tridiagonal reductions,
// tridiagonal solves. Each but the last is one routine of the provider's for each matrix of a batch.
#ifndef HLO_DISPATCH_LAPACK_JAX_ONLY_CALLS_H_
#define HLO_DISPATCH_LAPACK_JAX_ONLY_CALLS_H_

#include "common/attributes.h"
#include "common/parallel.h"
#include "common/provider.h"
#include "common/routine.h"

namespace hlo_dispatch::lapack {

// A call as JAX makes it: all matrices are dense and in column-major order.
struct JaxCall {
  const Provider& provider;
  const Attributes& attributes;  // `type`, and the dimensions of each operand and result (ROLE_dims); the options
  const RoutineBuffers& buffers;
  const Parallel& parallel;
};

// They throw Failure(kInvalid) where sizes do not fit together.
void PivotedQr(const JaxCall& call);
void MultiplyByQ(const JaxCall& call);
void SvdByQrIteration(const JaxCall& call);
void Eig(const JaxCall& call);
void Schur(const JaxCall& call);
void Hessenberg(const JaxCall& call);
void Tridiagonal(const JaxCall& call);
void TridiagonalSolve(const JaxCall& call);
// By our own code (perturbed_tridiagonal.cc).
void PerturbedTridiagonalSolve(const JaxCall& call);

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_JAX_ONLY_CALLS_H_
