// An executable that needs a vendor library may be the first to ask for it: it may have been compiled by another
// process. c_api/libraries.cc says here how that is loaded: as the host does it (Python:
// hlo_dispatch/vendor/libraries.py).
#ifndef HLO_DISPATCH_COMMON_LOADER_H_
#define HLO_DISPATCH_COMMON_LOADER_H_

#include <string>

namespace hlo_dispatch {

// Loads the library of this name ("oneDNN", "oneMKL", "SciPy"); returns why not, or nothing where it is loaded.
using Loader = std::string (*)(const std::string& name);

// Once it is set it stays.
void SetLoader(Loader loader);

// Loads the library; throws Failure(kUnavailable) with a sentence for the user where that fails. Takes the host's own
// locks, such as Python's: the caller must hold no lock that a thread with one of those waits for.
void LoadNow(const std::string& name);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_LOADER_H_
