// q · r = a: first as Householder reflectors below r (geqrf), then q itself from those (orgqr, ungqr).
#include <algorithm>
#include <cstring>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "lapack/batch.h"
#include "lapack/matrix.h"
#include "lapack/options.h"
#include "lapack/workspace.h"

namespace hlo_dispatch::lapack {

namespace {

using Geqrf = void (*)(const int* m, const int* n, void* a, const int* lda, void* tau, void* work, const int* lwork,
                       int* info);
using Orgqr = void (*)(const int* m, const int* n, const int* k, void* a, const int* lda, const void* tau, void* work,
                       const int* lwork, int* info);

class Qr final : public Routine {
 public:
  Qr(const Provider& provider, const Attributes& attributes)
      : provider_(provider),
        a_(MatrixFromAttributes(attributes, "a")),
        qr_(MatrixFromAttributes(attributes, "qr")),
        geqrf_(provider.Get<Geqrf>(a_.scalar.prefix, "geqrf")) {
    CheckSame(a_, qr_);
    reflectors_ = std::min(a_.rows, a_.columns);
    work_size_ = WorkSize(a_.scalar, [&](void* work, const int* query) {
      const int m = static_cast<int>(a_.rows), n = static_cast<int>(a_.columns), lda = std::max(m, 1);
      int info = 0;
      geqrf_(&m, &n, nullptr, &lda, nullptr, work, query, &info);
      return info;
    });
    operands_ = {a_.spec()};
    results_ = {qr_.spec(),
                VectorSpec("tau", a_.scalar.type, a_.scalar.bytes, Product(a_.batch(), reflectors_, "tau"))};
  }

  std::string implementation() const override { return a_.scalar.prefix + "geqrf"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const int m = static_cast<int>(a_.rows);
    const int n = static_cast<int>(a_.columns);
    ForBatch(provider_, a_, parallel, [&](int64_t i, const Parallel& inner) {
      const ColumnMajor qr(qr_, qr_.At(buffers.results[0], i));
      Copy(a_, a_.At(buffers.operands[0], i), qr.matrix(), qr.data(), Copying::kPlain, inner);
      void* tau = static_cast<char*>(buffers.results[1]) + i * reflectors_ * a_.scalar.bytes;
      Workspace work(work_size_, a_.scalar.bytes);
      const int leading = qr.leading();
      int info = 0;
      geqrf_(&m, &n, qr.data(), &leading, tau, work.data(), work.size(), &info);
      CheckInfo("geqrf", info);
      qr.Finish(inner);
    });
  }

 private:
  const Provider& provider_;
  Matrix a_;
  Matrix qr_;
  Geqrf geqrf_;
  int64_t reflectors_;
  int work_size_;
};

class HouseholderProduct final : public Routine {
 public:
  HouseholderProduct(const Provider& provider, const Attributes& attributes)
      : provider_(provider), a_(MatrixFromAttributes(attributes, "a")), q_(MatrixFromAttributes(attributes, "q")) {
    CheckSame(a_, q_);
    const std::vector<int64_t> tau = attributes.Integers("tau_dims");
    reflectors_ = tau.empty() ? 0 : tau.back();
    if (tau.empty() || reflectors_ < 0 || reflectors_ > a_.columns || a_.columns > a_.rows) {
      Invalid(
          "attribute 'tau_dims': expected no more reflectors than columns, and no "
          "more columns than rows");
    }
    name_ = a_.scalar.prefix + (a_.scalar.is_complex() ? "ungqr" : "orgqr");
    orgqr_ = provider.Get<Orgqr>("", name_);
    work_size_ = WorkSize(a_.scalar, [&](void* work, const int* query) {
      const int m = static_cast<int>(a_.rows), n = static_cast<int>(a_.columns), lda = std::max(m, 1);
      const int k = static_cast<int>(reflectors_);
      int info = 0;
      orgqr_(&m, &n, &k, nullptr, &lda, nullptr, work, query, &info);
      return info;
    });
    const int64_t reflectors = Product(a_.batch(), reflectors_, "tau");
    operands_ = {a_.spec(), VectorSpec("tau", a_.scalar.type, a_.scalar.bytes, reflectors)};
    results_ = {q_.spec()};
  }

  std::string implementation() const override { return name_; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const int m = static_cast<int>(a_.rows);
    const int n = static_cast<int>(a_.columns);
    const int k = static_cast<int>(reflectors_);
    ForBatch(provider_, a_, parallel, [&](int64_t i, const Parallel& inner) {
      const ColumnMajor q(q_, q_.At(buffers.results[0], i));
      Copy(a_, a_.At(buffers.operands[0], i), q.matrix(), q.data(), Copying::kPlain, inner);
      const void* tau = static_cast<const char*>(buffers.operands[1]) + i * reflectors_ * a_.scalar.bytes;
      Workspace work(work_size_, a_.scalar.bytes);
      const int leading = q.leading();
      int info = 0;
      orgqr_(&m, &n, &k, q.data(), &leading, tau, work.data(), work.size(), &info);
      CheckInfo(name_, info);
      q.Finish(inner);
    });
  }

 private:
  const Provider& provider_;
  Matrix a_;
  Matrix q_;
  std::string name_;
  Orgqr orgqr_;
  int64_t reflectors_;
  int work_size_;
};

const Family<Qr, kMkl, kScipy> qr_family("qr", {{"geqrf"}});
const Family<HouseholderProduct, kMkl, kScipy> product_family("householder_product", {{"orgqr", "ungqr"}});

}  // namespace

}  // namespace hlo_dispatch::lapack
