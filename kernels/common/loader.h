// Vendor libraries are found by Python (hlo_dispatch/vendor/libraries.py), and an executable that needs one may be the
// first to ask: it may have been compiled by another process. python/module.cc says here how to ask Python.
#ifndef HLO_DISPATCH_COMMON_LOADER_H_
#define HLO_DISPATCH_COMMON_LOADER_H_

#include <string>

namespace hlo_dispatch {

// Loads the library of this name ("oneDNN", "oneMKL", "SciPy"); returns why not, or nothing where it is loaded.
using Loader = std::string (*)(const std::string& name);

// Once it is set it stays.
void SetLoader(Loader loader);

// Loads the library; throws Failure(kUnavailable) with a sentence for the user where that fails. Takes Python's own
// lock: no lock may be held that a thread with Python's lock waits for.
void LoadNow(const std::string& name);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_LOADER_H_
