// Instruction sets of this processor for own kernels, up to the ISA cap.
#ifndef HLO_DISPATCH_COMMON_PROCESSOR_H_
#define HLO_DISPATCH_COMMON_PROCESSOR_H_

namespace hlo_dispatch {

// Whether it has the instruction sets that CMakeLists.txt compiles for by these names. HLO_DISPATCH_MAX_CPU_ISA
// (process/machine.py) is an ISA cap; it is read once.
bool HasAvx2();
bool HasAvx512();
bool HasAvx512Vnni();
bool HasAvxVnni();
bool HasAvx512Bf16();

// The same arithmetic that was compiled for several instruction sets: the best that there is.
template <typename Arithmetic>
const Arithmetic& ForThisProcessor(const Arithmetic& plain, const Arithmetic& avx2, const Arithmetic& avx512) {
  if (HasAvx512()) return avx512;
  return HasAvx2() ? avx2 : plain;
}

// Instruction sets that a kernel cannot do without.
struct Instructions {
  const char* name;
  bool (*are_there)();
};

inline constexpr Instructions kAvx512{"AVX-512", HasAvx512};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PROCESSOR_H_
