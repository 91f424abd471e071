#include "common/huge_pages.h"

#include <sys/mman.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace hlo_dispatch {

namespace {

constexpr char kFolder[] = "/sys/kernel/mm/transparent_hugepage/";

// Bytes of a huge page; 0 where the system has none or disables them.
uintptr_t HugePageBytes() {
  std::string enabled;
  std::getline(std::ifstream(std::string(kFolder) + "enabled"), enabled);
  if (enabled.empty() || enabled.find("[never]") != std::string::npos) return 0;
  uintptr_t bytes = 0;
  std::ifstream(std::string(kFolder) + "hpage_pmd_size") >> bytes;
  return bytes;
}

}  // namespace

void AdviseHugePages(void* begin, int64_t bytes) {
  if (bytes < kMinAdvised) return;
  static const uintptr_t page = HugePageBytes();
  if (page == 0) return;
  const auto address = reinterpret_cast<uintptr_t>(begin);
  // Only whole pages inside of the buffer.
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t last = (address + static_cast<uintptr_t>(bytes)) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace hlo_dispatch
