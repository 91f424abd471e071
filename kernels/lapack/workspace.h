// LAPACK workspaces: size queries (lwork = -1) and memory.
#ifndef HLO_DISPATCH_LAPACK_WORKSPACE_H_
#define HLO_DISPATCH_LAPACK_WORKSPACE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "common/failure.h"
#include "lapack/matrix.h"

namespace hlo_dispatch::lapack {

// Throws Failure(kInternal) where a routine says that one of its arguments was wrong: it is then our mistake.
// What a positive info means is the program's business.
inline void CheckInfo(const std::string& routine, int info) {
  if (info >= 0) return;
  throw Failure(FailureKind::kInternal, routine + " refuses its argument " + std::to_string(-info));
}

// The size that a query returns in the first element of the workspace: in the routine's element type, where a float may
// have been rounded down.
inline int AnsweredSize(const Scalar& scalar, const void* answer) {
  // A size that does not fit comes back as whatever the routine's own sum of integers wrapped to.
  const double size = scalar.real_bytes() == 4
                          ? std::nextafter(*static_cast<const float*>(answer), std::numeric_limits<float>::infinity())
                          : *static_cast<const double*>(answer);
  if (!(size >= 0 && size < std::numeric_limits<int>::max())) {
    Unsupported("the working memory exceeds LAPACK's integers");
  }
  return std::max(1, static_cast<int>(std::ceil(size)));
}

// Elements of working memory. ask(work, &lwork) calls the routine with lwork = -1 and returns its info.
template <typename Ask>
int WorkSize(const Scalar& scalar, const Ask& ask) {
  double answer[2] = {1, 0};
  const int query = -1;
  CheckInfo("LAPACK", ask(answer, &query));
  return AnsweredSize(scalar, answer);
}

// Uninitialised memory.
class Workspace {
 public:
  Workspace(int64_t elements, int64_t bytes_per_element)
      : memory_(new char[static_cast<size_t>(std::max<int64_t>(1, elements * bytes_per_element))]),
        size_(static_cast<int>(elements)) {}
  void* data() const { return memory_.get(); }
  const int* size() const { return &size_; }

 private:
  std::unique_ptr<char[]> memory_;
  int size_;
};

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_WORKSPACE_H_
