// Elements of reduced arrays, as they are in memory and in vectors; for files that are compiled for each ISA.
#ifndef HLO_DISPATCH_REDUCTIONS_ELEMENTS_H_
#define HLO_DISPATCH_REDUCTIONS_ELEMENTS_H_

#include "common/vectors.h"

namespace hlo_dispatch::reductions {
namespace {  // each ISA has its own

// Numbers as they are in memory and in vectors.
template <typename T>
struct Same {
  using Number = T;
  typedef T Element __attribute__((may_alias, aligned(1)));
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) {
    typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
    return *reinterpret_cast<const Anywhere*>(from);
  }
  static HLO_DISPATCH_INLINE T ReadOne(const Element* from) { return *from; }
};

struct Half {
  using Number = float;
  using Element = AnyHalf;
  using Vector = Same<float>::Vector;
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) { return LoadBf16(reinterpret_cast<const char*>(from)); }
  static HLO_DISPATCH_INLINE float ReadOne(const Element* from) { return FromBf16(*from); }
};

}  // namespace
}  // namespace hlo_dispatch::reductions

#endif  // HLO_DISPATCH_REDUCTIONS_ELEMENTS_H_
