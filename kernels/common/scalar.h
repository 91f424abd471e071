// Element type of linear algebra and Fourier transforms, with LAPACK's letters for it.
#ifndef HLO_DISPATCH_COMMON_SCALAR_H_
#define HLO_DISPATCH_COMMON_SCALAR_H_

#include <cstdint>
#include <string>

#include "common/attributes.h"
#include "common/ffi.h"

namespace hlo_dispatch {

struct Scalar {
  std::string prefix;       // LAPACK's: s, d, c or z
  std::string real_prefix;  // of the real type of the same precision: s or d
  xla::ffi::DataType type;
  xla::ffi::DataType real_type;
  int64_t bytes;

  bool is_complex() const { return type != real_type; }
  int64_t real_bytes() const { return is_complex() ? bytes / 2 : bytes; }
};

// Of the attribute `type`: f32, f64, c64 or c128. Throws Failure(kInvalid) for another.
Scalar ScalarFromAttributes(const Attributes& attributes);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SCALAR_H_
