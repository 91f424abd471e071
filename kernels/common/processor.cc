#include "common/processor.h"

#include <cstdlib>
#include <string>

namespace hlo_dispatch {

namespace {

// How much of the processor is used, in the order of HLO_DISPATCH_MAX_CPU_ISA's names.
enum Level { kSse41, kAvx2, kAvx512Core, kAvx512CoreVnni, kEverything };

Level MostUsed() {
  const char* variable = std::getenv("HLO_DISPATCH_MAX_CPU_ISA");
  const std::string most = variable == nullptr ? "" : variable;
  if (most == "SSE41") return kSse41;
  if (most == "AVX2") return kAvx2;
  if (most == "AVX512_CORE") return kAvx512Core;
  if (most == "AVX512_CORE_VNNI") return kAvx512CoreVnni;
  return kEverything;
}

bool IsUsed(Level level) {
  static const Level most = MostUsed();
  return level <= most;
}

}  // namespace

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && IsUsed(kAvx2);
  return has;
}

bool HasAvx512() {
  static const bool has =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && IsUsed(kAvx512Core);
  return has;
}

bool HasAvx512Bf16() {
  static const bool has = HasAvx512() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bf16") && IsUsed(kEverything);
  return has;
}

}  // namespace hlo_dispatch
