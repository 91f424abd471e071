// Declarations of what is compiled once for each instruction set (*_isa.cc, CMakeLists.txt), in a namespace of its
// name.
#ifndef HLO_DISPATCH_COMMON_ISA_H_
#define HLO_DISPATCH_COMMON_ISA_H_

// A file that is compiled for some of them only defines it in theirs.
#define HLO_DISPATCH_FOR_EACH_ISA(declaration) \
  namespace plain {                            \
  declaration                                  \
  }                                            \
  namespace avx2 {                             \
  declaration                                  \
  }                                            \
  namespace avx_vnni {                         \
  declaration                                  \
  }                                            \
  namespace avx512 {                           \
  declaration                                  \
  }                                            \
  namespace avx512_vnni {                      \
  declaration                                  \
  }                                            \
  namespace avx512_bf16 {                      \
  declaration                                  \
  }

#endif  // HLO_DISPATCH_COMMON_ISA_H_
