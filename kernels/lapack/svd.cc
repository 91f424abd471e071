// a = u · diag(s) · vt; s descends. `a` is also the first result, as LAPACK destroys it.
#include <algorithm>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "lapack/batch.h"
#include "lapack/matrix.h"
#include "lapack/options.h"
#include "lapack/workspace.h"

namespace hlo_dispatch::lapack {

namespace {

using Gesdd = void (*)(const char* mode, const int* m, const int* n, void* a, const int* lda, void* s, void* u,
                       const int* ldu, void* vt, const int* ldvt, void* work, const int* lwork, int* iwork, int* info);
using ComplexGesdd = void (*)(const char* mode, const int* m, const int* n, void* a, const int* lda, void* s, void* u,
                              const int* ldu, void* vt, const int* ldvt, void* work, const int* lwork, void* rwork,
                              int* iwork, int* info);

class Svd final : public Routine {
 public:
  Svd(const Provider& provider, const Attributes& attributes)
      : provider_(provider),
        a_(MatrixFromAttributes(attributes, "a")),
        destroyed_(MatrixFromAttributes(attributes, "destroyed")),
        u_(MatrixFromAttributes(attributes, "u")),
        vt_(MatrixFromAttributes(attributes, "vt")),
        mode_(Option(attributes, "mode", "ASN")),
        values_(std::min(a_.rows, a_.columns)) {
    CheckSame(a_, destroyed_);
    CheckVectors();
    if (a_.scalar.is_complex()) {
      complex_gesdd_ = provider.Get<ComplexGesdd>(a_.scalar.prefix, "gesdd");
    } else {
      gesdd_ = provider.Get<Gesdd>(a_.scalar.prefix, "gesdd");
    }
    work_size_ = WorkSize(a_.scalar, [&](void* work, const int* query) {
      const int lda = Leading(a_.rows), ldu = Leading(u_.rows), ldvt = Leading(vt_.rows);
      int info = 0;
      Call(nullptr, lda, nullptr, nullptr, ldu, nullptr, ldvt, work, query, nullptr, nullptr, &info);
      return info;
    });
    operands_ = {a_.spec()};
    const int64_t values = Product(a_.batch(), values_, "s");
    results_ = {destroyed_.spec(), VectorSpec("s", a_.scalar.real_type, a_.scalar.real_bytes(), values), u_.spec(),
                vt_.spec(), VectorSpec("info", xla::ffi::S32, 4, a_.batch())};
  }

  std::string implementation() const override { return a_.scalar.prefix + "gesdd"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    ForBatch(provider_, a_, parallel, [&](int64_t i, const Parallel& inner) {
      const ColumnMajor a(destroyed_, destroyed_.At(buffers.results[0], i));
      const ColumnMajor u(u_, u_.At(buffers.results[2], i));
      const ColumnMajor vt(vt_, vt_.At(buffers.results[3], i));
      Copy(a_, a_.At(buffers.operands[0], i), a.matrix(), a.data(), Copying::kPlain, inner);
      void* s = static_cast<char*>(buffers.results[1]) + i * values_ * a_.scalar.real_bytes();
      const Workspace work(work_size_, a_.scalar.bytes);
      const Workspace real_work(RealWorkSize(), a_.scalar.real_bytes());
      const Workspace integers(8 * values_, sizeof(int));
      int* info = static_cast<int*>(buffers.results[4]) + i;
      Call(a.data(), a.leading(), s, u.data(), u.leading(), vt.data(), vt.leading(), work.data(), work.size(),
           real_work.data(), static_cast<int*>(integers.data()), info);
      if (mode_ != 'N') {
        u.Finish(inner);
        vt.Finish(inner);
      }
    });
  }

 private:
  // All vectors of either side with mode A, as many as there are values with mode S; with mode N nothing is written.
  void CheckVectors() const {
    if (u_.batch() != a_.batch() || vt_.batch() != a_.batch()) Invalid("u and vt: expected as many of each as of a");
    if (mode_ == 'N') return;
    const int64_t columns = mode_ == 'A' ? a_.rows : values_, rows = mode_ == 'A' ? a_.columns : values_;
    CheckSize(u_, a_.rows, columns);
    CheckSize(vt_, rows, a_.columns);
    if (values_ == 0) Unsupported("an empty matrix: LAPACK leaves its vectors unwritten");
  }

  static int Leading(int64_t rows) { return static_cast<int>(std::max<int64_t>(1, rows)); }

  // As LAPACK's documentation of cgesdd asks for; real matrices need none.
  int64_t RealWorkSize() const {
    if (!a_.scalar.is_complex()) return 1;
    const int64_t larger = std::max(a_.rows, a_.columns);
    if (mode_ == 'N') return 7 * values_;
    return Product(values_, std::max(5 * values_ + 7, 2 * larger + 2 * values_ + 1), "a");
  }

  void Call(void* a, int lda, void* s, void* u, int ldu, void* vt, int ldvt, void* work, const int* work_size,
            void* real_work, int* integers, int* info) const {
    const int m = static_cast<int>(a_.rows);
    const int n = static_cast<int>(a_.columns);
    if (complex_gesdd_ != nullptr) {
      complex_gesdd_(&mode_, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, work_size, real_work, integers, info);
    } else {
      gesdd_(&mode_, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, work_size, integers, info);
    }
  }

  const Provider& provider_;
  Matrix a_;
  Matrix destroyed_;
  Matrix u_;
  Matrix vt_;
  char mode_;
  int64_t values_;
  Gesdd gesdd_ = nullptr;
  ComplexGesdd complex_gesdd_ = nullptr;
  int work_size_ = 1;
};

const Family<Svd, kMkl, kScipy> family("svd", {{"gesdd"}});

}  // namespace

}  // namespace hlo_dispatch::lapack
