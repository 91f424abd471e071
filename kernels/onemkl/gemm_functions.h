// The C functions and numbers of oneMKL's single precision gemm that we use; no header of oneMKL's is needed.
#ifndef HLO_DISPATCH_ONEMKL_GEMM_FUNCTIONS_H_
#define HLO_DISPATCH_ONEMKL_GEMM_FUNCTIONS_H_

#include <cstddef>

#include "common/provider.h"

namespace hlo_dispatch::onemkl {

inline constexpr int kRowMajor = 101, kColumnMajor = 102;
inline constexpr int kAsItIs = 111, kTransposed = 112, kPacked = 151;
inline constexpr int kPackedB = 162;  // which of the factors is packed

struct GemmFunctions {
  void (*gemm)(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
               const float* b, int ldb, float beta, float* c, int ldc);
  size_t (*packed_bytes)(int which, int m, int n, int k);
  void (*pack)(int layout, int which, int transpose, int m, int n, int k, float alpha, const float* from, int leading,
               float* to);
  void (*compute)(int layout, int transpose_a, int transpose_b, int m, int n, int k, const float* a, int lda,
                  const float* b, int ldb, float beta, float* c, int ldc);

  explicit GemmFunctions(const Provider& provider)
      : gemm(provider.Symbol<decltype(gemm)>("cblas_sgemm")),
        packed_bytes(provider.Symbol<decltype(packed_bytes)>("cblas_sgemm_pack_get_size")),
        pack(provider.Symbol<decltype(pack)>("cblas_sgemm_pack")),
        compute(provider.Symbol<decltype(compute)>("cblas_sgemm_compute")) {}
};

}  // namespace hlo_dispatch::onemkl

#endif  // HLO_DISPATCH_ONEMKL_GEMM_FUNCTIONS_H_
