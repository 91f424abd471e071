// Opening oneMKL: its parts, its threads, its version.
#ifndef HLO_DISPATCH_ONEMKL_LIBRARY_H_
#define HLO_DISPATCH_ONEMKL_LIBRARY_H_

#include <string>

namespace hlo_dispatch::onemkl {

struct Loaded {
  std::string path;
  std::string version;
  std::string runtime;  // what its threads run on
};

// Opens the file (libmkl_rt) and offers its BLAS and LAPACK to kernels; throws Failure(kUnavailable) when that cannot
// be done, or when this process uses another one. Loading the same file again is harmless.
//
// Its threads are TBB's, as oneDNN's are, unless the user chose others (MKL_THREADING_LAYER) or TBB is missing.
const Loaded& Load(const std::string& path);

}  // namespace hlo_dispatch::onemkl

#endif  // HLO_DISPATCH_ONEMKL_LIBRARY_H_
