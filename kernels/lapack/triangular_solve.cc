// op(a) · x = b, or x · op(a) = b, with a triangular.
#include "common/failure.h"
#include "common/family.h"
#include "lapack/batch.h"
#include "lapack/blocked.h"
#include "lapack/matrix.h"
#include "lapack/options.h"

namespace hlo_dispatch::lapack {

namespace {

using Trsm = void (*)(const char* side, const char* uplo, const char* trans, const char* diag, const int* m,
                      const int* n, const void* alpha, const void* a, const int* lda, void* b, const int* ldb);

// 1 in each type: a complex one begins with its real part.
const float kOneSingle[2] = {1.0f, 0.0f};
const double kOneDouble[2] = {1.0, 0.0};

class TriangularSolve final : public Routine {
 public:
  TriangularSolve(const Provider& provider, const Attributes& attributes)
      : provider_(provider),
        a_(MatrixFromAttributes(attributes, "a")),
        b_(MatrixFromAttributes(attributes, "b")),
        x_(MatrixFromAttributes(attributes, "x")),
        side_(Option(attributes, "side", "LR")),
        uplo_(Option(attributes, "uplo", "LU")),
        diag_(Option(attributes, "diag", "NU")),
        trsm_(provider.is_own() ? nullptr : provider.Get<Trsm>(a_.scalar.prefix, "trsm")),
        blocked_(provider.is_own() ? blocked::FindTrsm(a_.scalar) : nullptr) {
    CheckSquare(a_);
    CheckSame(b_, x_);
    if (a_.batch() != b_.batch() || a_.rows != (side_ == 'L' ? b_.rows : b_.columns)) {
      Invalid("a and b: their sizes do not fit");
    }
    const char trans = Option(attributes, "trans_x", "NTC");
    bool transposed = trans != 'N';
    bool conjugated = trans == 'C' && a_.scalar.is_complex();
    if (provider.is_own()) batch_ = blocked::FindTrsmBatch(a_, b_, x_);
    triangle_ = {side_, uplo_, transposed, diag_ == 'U'};
    // As BLAS reads both by columns: a row-major a is its own transpose, with the other triangle, and for a
    // row-major x the whole equation is transposed, which changes sides.
    if (!a_.is_column_major()) {
      uplo_ = Flipped(uplo_);
      transposed = !transposed;
    }
    if (!x_.is_column_major()) {
      side_ = side_ == 'L' ? 'R' : 'L';
      transposed = !transposed;
    }
    // BLAS has no conjugate without a transpose; conj(a) · x = b is a · conj(x) = conj(b).
    copying_ = conjugated && !transposed ? Copying::kConjugated : Copying::kPlain;
    trans_ = !transposed ? 'N' : conjugated ? 'C' : 'T';
    operands_ = {a_.spec(), b_.spec()};
    results_ = {x_.spec()};
  }

  std::string implementation() const override {
    return (batch_ ? "lanes_" : blocked_ ? "blocked_" : "") + a_.scalar.prefix + "trsm";
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (batch_ != nullptr) {
      batch_(triangle_, a_, buffers.operands[0], b_, buffers.operands[1], x_, buffers.results[0], parallel);
      return;
    }
    const bool by_column = x_.is_column_major();
    const int m = static_cast<int>(by_column ? x_.rows : x_.columns);
    const int n = static_cast<int>(by_column ? x_.columns : x_.rows);
    const int lda = static_cast<int>(a_.leading());
    const int ldb = static_cast<int>(x_.leading());
    const void* one = a_.scalar.real_bytes() == 4 ? static_cast<const void*>(kOneSingle) : kOneDouble;
    ForBatch(provider_, a_, parallel, [&](int64_t i, const Parallel& inner) {
      const void* a = a_.At(buffers.operands[0], i);
      const void* b = b_.At(buffers.operands[1], i);
      void* x = x_.At(buffers.results[0], i);
      if (blocked_ != nullptr) {
        const bool flipped = !by_column;
        blocked_(side_, uplo_, trans_ != 'N', diag_ == 'U', m, n, a, lda, b, flipped ? b_.column_stride : b_.row_stride,
                 flipped ? b_.row_stride : b_.column_stride, x, 1, ldb, inner);
        return;
      }
      Copy(b_, b, x_, x, copying_, inner);
      trsm_(&side_, &uplo_, &trans_, &diag_, &m, &n, one, a, &lda, x, &ldb);
      if (copying_ == Copying::kConjugated) Conjugate(x_, x);
    });
  }

 private:
  const Provider& provider_;
  Matrix a_;
  Matrix b_;
  Matrix x_;
  char side_;
  char uplo_;
  char diag_;
  char trans_;
  Copying copying_;
  Trsm trsm_;
  blocked::Trsm blocked_;
  blocked::TrsmBatch batch_ = nullptr;
  blocked::Triangle triangle_{};  // of the matrices as they are described
};

const Family<TriangularSolve, kMkl, kScipy, kOwn> family("triangular_solve", {{"trsm"}});

}  // namespace

}  // namespace hlo_dispatch::lapack
