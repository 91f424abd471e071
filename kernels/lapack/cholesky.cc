// factor · factorᴴ = a (or factorᴴ · factor = a), in the triangle that uplo names; the other one is a's.
#include "common/family.h"
#include "lapack/batch.h"
#include "lapack/blocked.h"
#include "lapack/matrix.h"
#include "lapack/options.h"

namespace hlo_dispatch::lapack {

namespace {

using Potrf = void (*)(const char* uplo, const int* n, void* a, const int* lda, int* info);

class Cholesky final : public Routine {
 public:
  Cholesky(const Provider& provider, const Attributes& attributes)
      : provider_(provider),
        a_(MatrixFromAttributes(attributes, "a")),
        factor_(MatrixFromAttributes(attributes, "factor")),
        uplo_(Option(attributes, "uplo", "LU")),
        copying_(CopyingOf(attributes, a_)),
        potrf_(provider.is_own() ? nullptr : provider.Get<Potrf>(a_.scalar.prefix, "potrf")),
        blocked_(provider.is_own() ? blocked::FindPotrf(a_.scalar) : nullptr) {
    CheckSame(a_, factor_);
    CheckSquare(a_);
    if (provider.is_own()) batch_ = blocked::FindPotrfBatch(a_, factor_);
    operands_ = {a_.spec()};
    results_ = {factor_.spec(), VectorSpec("info", xla::ffi::S32, 4, a_.batch())};
  }

  std::string implementation() const override {
    return (batch_ ? "lanes_" : blocked_ ? "blocked_" : "") + a_.scalar.prefix + "potrf";
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    // Read by columns, a row-major factor is its transpose, and its lower triangle the upper one. A complex one's
    // conjugate, that is: which is the factor of the transposed (conjugated) matrix all the same.
    const char uplo = factor_.is_column_major() ? uplo_ : Flipped(uplo_);
    const int n = static_cast<int>(factor_.rows);
    const int leading = static_cast<int>(factor_.leading());
    auto* info = static_cast<int*>(buffers.results[1]);
    if (batch_ != nullptr) {
      batch_(uplo_, a_, buffers.operands[0], copying_ == Copying::kSymmetrised, factor_, buffers.results[0], info,
             parallel);
      return;
    }
    ForBatch(provider_, a_, parallel, [&](int64_t i, const Parallel& inner) {
      const void* source = a_.At(buffers.operands[0], i);
      void* factor = factor_.At(buffers.results[0], i);
      Copy(a_, source, factor_, factor, copying_, inner);
      if (blocked_ != nullptr) {
        blocked_(uplo, n, factor, leading, info + i, inner);
      } else {
        potrf_(&uplo, &n, factor, &leading, info + i);
      }
    });
  }

 private:
  const Provider& provider_;
  Matrix a_;
  Matrix factor_;
  char uplo_;
  Copying copying_;
  Potrf potrf_;
  blocked::Potrf blocked_;
  blocked::PotrfBatch batch_ = nullptr;
};

const Family<Cholesky, kMkl, kScipy, kOwn> family("cholesky", {{"potrf"}});

}  // namespace

}  // namespace hlo_dispatch::lapack
