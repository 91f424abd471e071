#include "common/processor.h"

#include <cstdlib>
#include <string>

namespace hlo_dispatch {

namespace {

// ISA cap: the values of HLO_DISPATCH_MAX_CPU_ISA in ascending order.
enum IsaLevel { kSse41, kAvx2, kAvx512Core, kAvx512CoreVnni, kUncapped };

IsaLevel IsaCap() {
  const char* variable = std::getenv("HLO_DISPATCH_MAX_CPU_ISA");
  const std::string cap = variable == nullptr ? "" : variable;
  if (cap == "SSE41") return kSse41;
  if (cap == "AVX2") return kAvx2;
  if (cap == "AVX512_CORE") return kAvx512Core;
  if (cap == "AVX512_CORE_VNNI") return kAvx512CoreVnni;
  return kUncapped;
}

bool IsWithinIsaCap(IsaLevel level) {
  static const IsaLevel cap = IsaCap();
  return level <= cap;
}

}  // namespace

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && IsWithinIsaCap(kAvx2);
  return has;
}

bool HasAvx512() {
  static const bool has =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && IsWithinIsaCap(kAvx512Core);
  return has;
}

bool HasAvx512Vnni() {
  static const bool has = HasAvx512() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni") && IsWithinIsaCap(kAvx512CoreVnni);
  return has;
}

bool HasAvxVnni() {
  static const bool has = HasAvx2() && __builtin_cpu_supports("avxvnni") && IsWithinIsaCap(kUncapped);
  return has;
}

bool HasAvx512Bf16() {
  static const bool has = HasAvx512() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bf16") && IsWithinIsaCap(kUncapped);
  return has;
}

}  // namespace hlo_dispatch
