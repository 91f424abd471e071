// The functions and numbers of oneMKL's DFTI (discrete Fourier transforms) that we use; the library is opened at run
// time, so no header is needed.
#ifndef HLO_DISPATCH_ONEMKL_DFTI_H_
#define HLO_DISPATCH_ONEMKL_DFTI_H_

#include <cstdint>
#include <string>

namespace hlo_dispatch::onemkl {

struct DftiDescriptor;

enum DftiParameter {
  kForwardScale = 4,
  kBackwardScale = 5,
  kNumberOfTransforms = 7,
  kConjugateEvenStorage = 10,
  kPlacement = 11,
  kThreadLimit = 27,
  kForwardDistance = 58,
  kBackwardDistance = 59,
  kForwardStrides = 60,
  kBackwardStrides = 61,
};

enum DftiValue {
  kComplexDomain = 32,
  kRealDomain = 33,
  kSinglePrecision = 35,
  kDoublePrecision = 36,
  kComplexComplex = 39,
  kNotInPlace = 44,
};

using DftiLong = long;  // MKL_LONG

struct DftiFunctions {
  DftiLong (*create)(DftiDescriptor**, int precision, int domain, DftiLong rank, ...);
  DftiLong (*set_value)(DftiDescriptor*, int parameter, ...);
  DftiLong (*commit)(DftiDescriptor*);
  DftiLong (*forward)(DftiDescriptor*, void*, ...);
  DftiLong (*backward)(DftiDescriptor*, void*, ...);
  DftiLong (*destroy)(DftiDescriptor**);
  char* (*message)(DftiLong);
};

}  // namespace hlo_dispatch::onemkl

#endif  // HLO_DISPATCH_ONEMKL_DFTI_H_
