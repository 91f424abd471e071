// product = a · b, for what oneDNN does not multiply: by oneMKL's gemm, or, of triangular matrices, by our own code.
#include "common/failure.h"
#include "common/family.h"
#include "lapack/batch.h"
#include "lapack/blocked.h"
#include "lapack/matrix.h"

namespace hlo_dispatch::lapack {

namespace {

using Gemm = void (*)(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
                      const void* alpha, const void* a, const int* lda, const void* b, const int* ldb, const void* beta,
                      void* c, const int* ldc);

// 1 and 0 in each type: a complex one begins with its real part.
const float kSingle[4] = {1.0f, 0.0f, 0.0f, 0.0f};
const double kDouble[4] = {1.0, 0.0, 0.0, 0.0};

class Product final : public Routine {
 public:
  Product(const Provider& provider, const Attributes& attributes)
      : provider_(provider),
        a_(MatrixFromAttributes(attributes, "a")),
        b_(MatrixFromAttributes(attributes, "b")),
        product_(MatrixFromAttributes(attributes, "product")),
        gemm_(provider.is_own() ? nullptr : provider.Get<Gemm>(a_.scalar.prefix, "gemm")),
        blocked_(provider.is_own() ? blocked::FindProduct(a_.scalar) : nullptr) {
    if (a_.batch() != b_.batch() || a_.batch() != product_.batch() || a_.columns != b_.rows ||
        a_.rows != product_.rows || b_.columns != product_.columns) {
      Invalid("a, b and product: their sizes do not fit");
    }
    operands_ = {a_.spec(), b_.spec()};
    results_ = {product_.spec()};
  }

  std::string implementation() const override { return (blocked_ ? "blocked_" : "") + a_.scalar.prefix + "gemm"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    // Read by columns, a row-major product is its transpose, and that of its factors in the other order.
    const bool by_column = product_.is_column_major();
    const Matrix& left = by_column ? a_ : b_;
    const Matrix& right = by_column ? b_ : a_;
    const int m = static_cast<int>(by_column ? product_.rows : product_.columns);
    const int n = static_cast<int>(by_column ? product_.columns : product_.rows);
    const int k = static_cast<int>(a_.columns);
    const int ldc = static_cast<int>(product_.leading());
    ForBatch(provider_, product_, parallel, [&](int64_t i, const Parallel& inner) {
      const void* l = left.At(buffers.operands[by_column ? 0 : 1], i);
      const void* r = right.At(buffers.operands[by_column ? 1 : 0], i);
      void* c = product_.At(buffers.results[0], i);
      if (blocked_ != nullptr) {
        const auto along = [by_column](const Matrix& x) { return by_column ? x.row_stride : x.column_stride; };
        const auto across = [by_column](const Matrix& x) { return by_column ? x.column_stride : x.row_stride; };
        blocked_(m, n, k, l, along(left), across(left), r, along(right), across(right), c, ldc, inner);
        return;
      }
      const char trans_l = left.is_column_major() == by_column ? 'N' : 'T';
      const char trans_r = right.is_column_major() == by_column ? 'N' : 'T';
      const int ldl = static_cast<int>(left.leading()), ldr = static_cast<int>(right.leading());
      const bool is_single = a_.scalar.real_bytes() == 4;
      const void* one = is_single ? static_cast<const void*>(kSingle) : kDouble;
      const void* zero = is_single ? static_cast<const void*>(kSingle + 2) : kDouble + 2;
      gemm_(&trans_l, &trans_r, &m, &n, &k, one, l, &ldl, r, &ldr, zero, c, &ldc);
    });
  }

 private:
  const Provider& provider_;
  Matrix a_;
  Matrix b_;
  Matrix product_;
  Gemm gemm_;
  blocked::Product blocked_;
};

const Family<Product, kMkl> family("product", {{"gemm"}});
const Family<Product, kOwn> triangular_family("triangular_product");

}  // namespace

}  // namespace hlo_dispatch::lapack
