// A kernel family: one kernel for each library that computes it, registered by an object in its own file:
//
//   const Family<Cholesky, kMkl, kScipy, kOwn> family("cholesky", {{"potrf"}});
#ifndef HLO_DISPATCH_COMMON_FAMILY_H_
#define HLO_DISPATCH_COMMON_FAMILY_H_

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
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
inline constexpr Vendor kSvml{kSvmlName, "svml"};
// What any processor computes, each as fast as it can.
inline constexpr Vendor kOwnEverywhere{kOwnName, "own"};
inline constexpr Vendor kOneDnn{"oneDNN", "onednn"};

// The kernels that prepack weights for oneDNN's, and whose calls are groups of calls.
inline constexpr char kOneDnnPack[] = "onednn.pack", kOneDnnCallGroup[] = "onednn.sequence";

// What a family's kernels have in common besides their names, as Kernel has it (common/registry.h).
struct FamilyTraits {
  std::vector<std::string> routines = {};
  std::string packed_by = "", joined_by = "";
  bool may_write_over_source = false, only_copies = false;
};

// `Made` is a Routine that is made from a provider and attributes, or adds the kernel itself (onednn/call.h).
template <typename Made, const Vendor&... vendors>
class Family {
 public:
  explicit Family(const std::string& name, const FamilyTraits& traits = {}) {
    (RegisterFor<vendors>(name, traits), ...);
  }

 private:
  template <const Vendor& vendor>
  static void RegisterFor(const std::string& name, const FamilyTraits& traits) {
    Kernel kernel;
    kernel.name = std::string(vendor.folder) + "." + name;
    kernel.library = vendor.library;
    kernel.instructions = vendor.instructions;
    if (&vendor != &kOwn) kernel.routines = traits.routines;
    kernel.packed_by = traits.packed_by;
    kernel.joined_by = traits.joined_by;
    kernel.may_write_over_source = traits.may_write_over_source;
    kernel.only_copies = traits.only_copies;
    if constexpr (std::is_base_of_v<Routine, Made>) {
      RoutineKernel<Make<vendor>>::Add(std::move(kernel));
    } else {
      Made::Add(std::move(kernel));
    }
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
