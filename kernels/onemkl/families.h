// The families that only oneMKL has: (library, name, maker).
#ifndef HLO_DISPATCH_ONEMKL_FAMILIES_H_
#define HLO_DISPATCH_ONEMKL_FAMILIES_H_

#define HLO_DISPATCH_ONEMKL_FAMILIES(family)

#endif  // HLO_DISPATCH_ONEMKL_FAMILIES_H_
