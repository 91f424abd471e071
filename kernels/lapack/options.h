// LAPACK's one-letter options, and what every family checks of its matrices.
#ifndef HLO_DISPATCH_LAPACK_OPTIONS_H_
#define HLO_DISPATCH_LAPACK_OPTIONS_H_

#include <cstdint>
#include <string>

#include "common/attributes.h"
#include "lapack/matrix.h"

namespace hlo_dispatch::lapack {

// The attribute's letter (JAX writes it as its character code); throws Failure(kInvalid) if it is none of `letters`.
char Option(const Attributes& attributes, const std::string& name, const std::string& letters);

// How a routine copies the matrix `a` before it overwrites the copy: symmetrised where that attribute says so. Throws
// Failure(kUnsupported) for complex matrices, whose half sum with the transpose is not Hermitian.
Copying CopyingOf(const Attributes& attributes, const Matrix& a);

// L for U and U for L.
char Flipped(char uplo);

// Throw Failure(kInvalid) naming the matrices.
void CheckSame(const Matrix& a, const Matrix& b);
void CheckSquare(const Matrix& a);
void CheckSize(const Matrix& a, int64_t rows, int64_t columns);

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_OPTIONS_H_
