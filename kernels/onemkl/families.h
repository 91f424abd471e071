// The families that only oneMKL has: (library, name, maker).
#ifndef HLO_DISPATCH_ONEMKL_FAMILIES_H_
#define HLO_DISPATCH_ONEMKL_FAMILIES_H_

#include <memory>

#include "common/routine.h"
#include "lapack/families.h"

namespace hlo_dispatch::onemkl {

std::unique_ptr<Routine> MakeFft(const lapack::Provider& provider, const Attributes& attributes);

}  // namespace hlo_dispatch::onemkl

#define HLO_DISPATCH_ONEMKL_FAMILIES(family) \
  family(onemkl, fft, (::hlo_dispatch::lapack::MakeFor<::hlo_dispatch::onemkl::MakeFft, ::hlo_dispatch::lapack::kMkl>))

#endif  // HLO_DISPATCH_ONEMKL_FAMILIES_H_
