// Panels of the blocked routines: padding and aligned memory.
#ifndef HLO_DISPATCH_LAPACK_PANELS_H_
#define HLO_DISPATCH_LAPACK_PANELS_H_

#include <cstdint>
#include <new>

#include "common/rounding.h"
#include "lapack/blocked_avx512.h"
#include "lapack/matrix.h"

namespace hlo_dispatch::lapack::blocked {

inline int64_t Padded(int64_t value) { return RoundUpTo(value, kColumns); }

// Throws Failure(kUnsupported) for a complex type, or where the processor lacks AVX-512.
void Check(const Scalar& scalar);

// Uninitialised, at the start of a cache line.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t elements)
      : data_(static_cast<T*>(::operator new(static_cast<size_t>(elements) * sizeof(T), std::align_val_t(64)))) {}
  ~Buffer() { ::operator delete(data_, std::align_val_t(64)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data() const { return data_; }

 private:
  T* data_;
};

}  // namespace hlo_dispatch::lapack::blocked

#endif  // HLO_DISPATCH_LAPACK_PANELS_H_
