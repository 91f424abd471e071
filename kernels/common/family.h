// A family of linear algebra becomes one kernel for each library that computes it, by an object in its own file:
//
//   const Family<Cholesky, kMkl, kScipy, kOwn> family("cholesky", {"potrf"});
#ifndef HLO_DISPATCH_COMMON_FAMILY_H_
#define HLO_DISPATCH_COMMON_FAMILY_H_

#include <memory>
#include <string>
#include <vector>

#include "common/processor.h"
#include "common/provider.h"
#include "common/routine.h"

namespace hlo_dispatch {

struct Vendor {
  const char* library;  // the provider's name
  const char* folder;   // what the names of its kernels begin with
  const Instructions* instructions = nullptr;
};

inline constexpr Vendor kMkl{kMklName, "onemkl"};
inline constexpr Vendor kScipy{kScipyName, "scipy"};
inline constexpr Vendor kOwn{kOwnName, "blocked", &kAvx512};
// What any processor computes, each as fast as it can.
inline constexpr Vendor kOwnEverywhere{kOwnName, "own"};

// `Made` is a Routine that is made from a provider and attributes.
template <typename Made, const Vendor&... vendors>
class Family {
 public:
  // Args: routines: of BLAS and LAPACK that it calls, without the letter of the element type. packed_by: the kernel
  // that prepacks its weights (common/registry.h), if there is one. joined_by: the call-group kernel of its calls,
  // likewise. may_write_over_source: as the kernel has it (common/registry.h).
  explicit Family(const std::string& name, const std::vector<std::string>& routines = {},
                  const std::string& packed_by = "", const std::string& joined_by = "",
                  bool may_write_over_source = false) {
    (RegisterFor<vendors>(name, routines, packed_by, joined_by, may_write_over_source), ...);
  }

 private:
  template <const Vendor& vendor>
  static void RegisterFor(const std::string& name, const std::vector<std::string>& routines,
                          const std::string& packed_by, const std::string& joined_by, bool may_write_over_source) {
    Kernel kernel;
    kernel.name = std::string(vendor.folder) + "." + name;
    kernel.library = vendor.library;
    kernel.instructions = vendor.instructions;
    if (&vendor != &kOwn) kernel.routines = routines;
    kernel.packed_by = packed_by;
    kernel.joined_by = joined_by;
    kernel.may_write_over_source = may_write_over_source;
    RoutineKernel<Make<vendor>>::Add(std::move(kernel));
  }

  // By one provider, of the version that the call was planned for.
  template <const Vendor& vendor>
  static std::unique_ptr<Routine> Make(const Attributes& attributes) {
    const Provider& provider = Provider::Get(vendor.library);
    provider.CheckVersion(attributes.Text("library"));
    return std::make_unique<Made>(provider, attributes);
  }
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_FAMILY_H_
