// a = v · diag(w) · vᴴ for a symmetric or Hermitian a, of which one triangle is read; w ascends.
#include <algorithm>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "lapack/batch.h"
#include "lapack/blocked.h"
#include "lapack/matrix.h"
#include "lapack/options.h"
#include "lapack/workspace.h"

namespace hlo_dispatch::lapack {

namespace {

using Syevd = void (*)(const char* mode, const char* uplo, const int* n, void* a, const int* lda, void* w, void* work,
                       const int* lwork, int* iwork, const int* liwork, int* info);
using Heevd = void (*)(const char* mode, const char* uplo, const int* n, void* a, const int* lda, void* w, void* work,
                       const int* lwork, void* rwork, const int* lrwork, int* iwork, const int* liwork, int* info);

class Eigh final : public Routine {
 public:
  Eigh(const Provider& provider, const Attributes& attributes)
      : provider_(provider),
        a_(MatrixFromAttributes(attributes, "a")),
        v_(MatrixFromAttributes(attributes, "v")),
        mode_(Option(attributes, "mode", "NV")),
        uplo_(Option(attributes, "uplo", "LU")),
        copying_(CopyingOf(attributes, a_)) {
    CheckSame(a_, v_);
    CheckSquare(a_);
    name_ = a_.scalar.prefix + (a_.scalar.is_complex() ? "heevd" : "syevd");
    if (provider.is_own()) {
      batch_ = blocked::FindSyevdBatch(a_, v_);
      if (batch_ == nullptr) Unsupported("our own code has eigenvalues of batches of matrices up to 8x8 alone");
      name_ = "lanes_" + name_;
    } else if (a_.scalar.is_complex()) {
      heevd_ = provider.Get<Heevd>("", name_);
      Query();
    } else {
      syevd_ = provider.Get<Syevd>("", name_);
      Query();
    }
    operands_ = {a_.spec()};
    const int64_t values = Product(a_.batch(), a_.rows, "w");
    results_ = {v_.spec(), VectorSpec("w", a_.scalar.real_type, a_.scalar.real_bytes(), values),
                VectorSpec("info", xla::ffi::S32, 4, a_.batch())};
  }

  std::string implementation() const override { return name_; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (batch_ != nullptr) {
      batch_({uplo_, copying_ == Copying::kSymmetrised, mode_ == 'V'}, a_, buffers.operands[0], v_, buffers.results[0],
             buffers.results[1], static_cast<int*>(buffers.results[2]), parallel);
      return;
    }
    ForBatch(provider_, a_, parallel, [&](int64_t i, const Parallel& inner) {
      const ColumnMajor v(v_, v_.At(buffers.results[0], i));
      Copy(a_, a_.At(buffers.operands[0], i), v.matrix(), v.data(), copying_, inner);
      void* w = static_cast<char*>(buffers.results[1]) + i * a_.rows * a_.scalar.real_bytes();
      const Workspace work(work_size_, a_.scalar.bytes);
      const Workspace real_work(real_work_size_, a_.scalar.real_bytes());
      const Workspace integers(integers_, sizeof(int));
      int* info = static_cast<int*>(buffers.results[2]) + i;
      Call(v.data(), v.leading(), w, work.data(), work.size(), real_work.data(), real_work.size(),
           static_cast<int*>(integers.data()), integers.size(), info);
      v.Finish(inner);
    });
  }

 private:
  void Query() {
    double work[2] = {1, 0};
    double real_work = 1;
    int integers = 1;
    int info = 0;
    const int query = -1;
    const int leading = static_cast<int>(std::max<int64_t>(1, a_.rows));
    Call(nullptr, leading, nullptr, work, &query, &real_work, &query, &integers, &query, &info);
    CheckInfo(name_, info);
    work_size_ = AnsweredSize(a_.scalar, work);
    real_work_size_ = AnsweredSize(a_.scalar, &real_work);
    integers_ = std::max(1, integers);
  }

  void Call(void* v, int leading, void* w, void* work, const int* work_size, void* real_work, const int* real_work_size,
            int* integers, const int* integers_size, int* info) const {
    const int n = static_cast<int>(a_.rows);
    if (heevd_ != nullptr) {
      heevd_(&mode_, &uplo_, &n, v, &leading, w, work, work_size, real_work, real_work_size, integers, integers_size,
             info);
    } else {
      syevd_(&mode_, &uplo_, &n, v, &leading, w, work, work_size, integers, integers_size, info);
    }
  }

  const Provider& provider_;
  Matrix a_;
  Matrix v_;
  char mode_;
  char uplo_;
  Copying copying_;
  std::string name_;
  Syevd syevd_ = nullptr;
  Heevd heevd_ = nullptr;
  blocked::SyevdBatch batch_ = nullptr;
  int work_size_ = 1;
  int real_work_size_ = 1;
  int integers_ = 1;
};

const Family<Eigh, kMkl, kScipy, kOwn> family("eigh", {{"syevd", "heevd"}});

}  // namespace

}  // namespace hlo_dispatch::lapack
