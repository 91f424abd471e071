// p · l · u = a with partial pivoting: lu holds both, pivots the rows exchanged, counted from 1 as LAPACK does.
#include "common/checked.h"
#include "common/family.h"
#include "lapack/batch.h"
#include "lapack/blocked.h"
#include "lapack/matrix.h"
#include "lapack/options.h"

#include <algorithm>

namespace hlo_dispatch::lapack {

namespace {

using Getrf = void (*)(const int* m, const int* n, void* a, const int* lda, int* pivots, int* info);

class Lu final : public Routine {
 public:
  Lu(const Provider& provider, const Attributes& attributes)
      : provider_(provider),
        a_(MatrixFromAttributes(attributes, "a")),
        lu_(MatrixFromAttributes(attributes, "lu")),
        getrf_(provider.is_own() ? nullptr : provider.Get<Getrf>(a_.scalar.prefix, "getrf")),
        small_(provider.is_own() ? blocked::FindSmallGetrf(a_.scalar, a_.rows) : nullptr),
        large_(provider.is_own() ? blocked::FindLargeGetrf(a_.scalar) : nullptr) {
    CheckSame(a_, lu_);
    if (provider.is_own()) batch_ = blocked::FindGetrfBatch(a_, lu_);
    pivots_ = std::min(a_.rows, a_.columns);
    operands_ = {a_.spec()};
    results_ = {lu_.spec(), VectorSpec("pivots", xla::ffi::S32, 4, Product(a_.batch(), pivots_, "pivots")),
                VectorSpec("info", xla::ffi::S32, 4, a_.batch())};
  }

  std::string implementation() const override {
    return (batch_ ? "lanes_" : small_ ? "small_" : large_ ? "blocked_" : "") + a_.scalar.prefix + "getrf";
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const int m = static_cast<int>(a_.rows);
    const int n = static_cast<int>(a_.columns);
    auto* pivots = static_cast<int*>(buffers.results[1]);
    auto* info = static_cast<int*>(buffers.results[2]);
    if (batch_ != nullptr) {
      batch_(a_, buffers.operands[0], lu_, buffers.results[0], pivots, info, parallel);
      return;
    }
    ForBatch(provider_, a_, parallel, [&](int64_t i, const Parallel& inner) {
      const void* source = a_.At(buffers.operands[0], i);
      // Pivoting is by rows, so a row-major result cannot be computed as its transpose.
      const ColumnMajor lu(lu_, lu_.At(buffers.results[0], i));
      Copy(a_, source, lu.matrix(), lu.data(), Copying::kPlain, inner);
      const int leading = lu.leading();
      const blocked::Getrf own = small_ != nullptr ? small_ : large_;
      if (own != nullptr) {
        own(m, n, lu.data(), leading, pivots + i * pivots_, info + i, inner);
      } else {
        getrf_(&m, &n, lu.data(), &leading, pivots + i * pivots_, info + i);
      }
      lu.Finish(inner);
    });
  }

 private:
  const Provider& provider_;
  Matrix a_;
  Matrix lu_;
  Getrf getrf_;
  blocked::Getrf small_, large_;
  blocked::GetrfBatch batch_ = nullptr;
  int64_t pivots_;
};

const Family<Lu, kMkl, kScipy, kOwn> family("lu", {{"getrf"}});

}  // namespace

}  // namespace hlo_dispatch::lapack
