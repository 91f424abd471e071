// The families of this folder: (library, name, maker), once for oneMKL and once for SciPy's LAPACK, some for our own
// blocked code. A family is one file that declares nothing but its makers here.
#ifndef HLO_DISPATCH_LAPACK_FAMILIES_H_
#define HLO_DISPATCH_LAPACK_FAMILIES_H_

#include <memory>
#include <string>

#include "common/failure.h"
#include "common/routine.h"
#include "lapack/provider.h"

namespace hlo_dispatch::lapack {

// Version of the attributes' meaning; must equal ABI in dispatch/hlo_dispatch/vendor/kernels.py.
inline constexpr int64_t kAbi = 1;

std::unique_ptr<Routine> MakeCholesky(const Provider& provider, const Attributes& attributes);
std::unique_ptr<Routine> MakeTriangularSolve(const Provider& provider, const Attributes& attributes);
std::unique_ptr<Routine> MakeLu(const Provider& provider, const Attributes& attributes);
std::unique_ptr<Routine> MakeQr(const Provider& provider, const Attributes& attributes);
std::unique_ptr<Routine> MakeHouseholderProduct(const Provider& provider, const Attributes& attributes);
std::unique_ptr<Routine> MakeEigh(const Provider& provider, const Attributes& attributes);
std::unique_ptr<Routine> MakeSvd(const Provider& provider, const Attributes& attributes);
std::unique_ptr<Routine> MakeProduct(const Provider& provider, const Attributes& attributes);

// The maker for one provider, of the version that the call was planned for.
template <std::unique_ptr<Routine> (*make)(const Provider&, const Attributes&), const char* provider_name>
std::unique_ptr<Routine> MakeFor(const Attributes& attributes) {
  if (const int64_t abi = attributes.Integer("abi"); abi != kAbi) {
    throw Failure(FailureKind::kInvalid, "attribute 'abi': this build understands " + std::to_string(kAbi) + ", got " +
                                             std::to_string(abi) + "; compile the program again");
  }
  const Provider& provider = Provider::Get(provider_name);
  provider.CheckVersion(attributes.Text("library"));
  return make(provider, attributes);
}

inline constexpr char kMkl[] = "oneMKL";
inline constexpr char kScipy[] = "SciPy";
inline constexpr char kOwn[] = "hlo-dispatch";

}  // namespace hlo_dispatch::lapack

#define HLO_DISPATCH_LAPACK_FAMILY(family, name, make)                                        \
  family(onemkl, name, (::hlo_dispatch::lapack::MakeFor<make, ::hlo_dispatch::lapack::kMkl>)) \
      family(scipy, name, (::hlo_dispatch::lapack::MakeFor<make, ::hlo_dispatch::lapack::kScipy>))

#define HLO_DISPATCH_BLOCKED_FAMILY(family, name, make) \
  family(blocked, name, (::hlo_dispatch::lapack::MakeFor<make, ::hlo_dispatch::lapack::kOwn>))

#define HLO_DISPATCH_MKL_FAMILY(family, name, make) \
  family(onemkl, name, (::hlo_dispatch::lapack::MakeFor<make, ::hlo_dispatch::lapack::kMkl>))

#define HLO_DISPATCH_LAPACK_FAMILIES(family)                                                              \
  HLO_DISPATCH_BLOCKED_FAMILY(family, triangular_product, ::hlo_dispatch::lapack::MakeProduct)            \
  HLO_DISPATCH_MKL_FAMILY(family, product, ::hlo_dispatch::lapack::MakeProduct)                           \
  HLO_DISPATCH_BLOCKED_FAMILY(family, cholesky, ::hlo_dispatch::lapack::MakeCholesky)                     \
  HLO_DISPATCH_BLOCKED_FAMILY(family, triangular_solve, ::hlo_dispatch::lapack::MakeTriangularSolve)      \
  HLO_DISPATCH_BLOCKED_FAMILY(family, lu, ::hlo_dispatch::lapack::MakeLu)                                 \
  HLO_DISPATCH_LAPACK_FAMILY(family, cholesky, ::hlo_dispatch::lapack::MakeCholesky)                      \
  HLO_DISPATCH_LAPACK_FAMILY(family, triangular_solve, ::hlo_dispatch::lapack::MakeTriangularSolve)       \
  HLO_DISPATCH_LAPACK_FAMILY(family, lu, ::hlo_dispatch::lapack::MakeLu)                                  \
  HLO_DISPATCH_LAPACK_FAMILY(family, qr, ::hlo_dispatch::lapack::MakeQr)                                  \
  HLO_DISPATCH_LAPACK_FAMILY(family, householder_product, ::hlo_dispatch::lapack::MakeHouseholderProduct) \
  HLO_DISPATCH_LAPACK_FAMILY(family, eigh, ::hlo_dispatch::lapack::MakeEigh)                              \
  HLO_DISPATCH_LAPACK_FAMILY(family, svd, ::hlo_dispatch::lapack::MakeSvd)

#endif  // HLO_DISPATCH_LAPACK_FAMILIES_H_
