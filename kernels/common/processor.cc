#include "common/processor.h"

#include <cstdlib>
#include <string>

namespace hlo_dispatch {

namespace {

bool IsLeftOut() {
  const char* most = std::getenv("HLO_DISPATCH_MAX_CPU_ISA");
  return most != nullptr && std::string(most) == "AVX2";
}

}  // namespace

bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && !IsLeftOut();
  return has;
}

}  // namespace hlo_dispatch
