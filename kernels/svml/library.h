// Opening SVML, Intel's functions of vectors, which come with the compiler's runtime that oneDNN needs.
#ifndef HLO_DISPATCH_SVML_LIBRARY_H_
#define HLO_DISPATCH_SVML_LIBRARY_H_

#include <string>

namespace hlo_dispatch::svml {

struct Loaded {
  std::string path;
  std::string version;
};

// Opens the file (libsvml) and offers its functions to kernels; throws Failure(kUnavailable) when that cannot be done,
// or when this process uses another one. Loading the same file again is harmless.
const Loaded& Load(const std::string& path);

}  // namespace hlo_dispatch::svml

#endif  // HLO_DISPATCH_SVML_LIBRARY_H_
