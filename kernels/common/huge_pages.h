// Transparent huge pages for memory that a program writes for the first time: one page fault where there were 512.
#ifndef HLO_DISPATCH_COMMON_HUGE_PAGES_H_
#define HLO_DISPATCH_COMMON_HUGE_PAGES_H_

#include <cstdint>

namespace hlo_dispatch {

// Bytes from which a buffer is advised. Allocators map such blocks anew for each run and unmap them afterwards (glibc
// from 32 MB on at the latest); smaller ones mostly keep their addresses. The advice costs a microsecond, the faults of
// so many bytes a thousand times that.
inline constexpr int64_t kMinAdvised = int64_t{16} << 20;

// Asks the operating system to back a buffer with huge pages when it is written (MADV_HUGEPAGE), where it holds whole
// ones; contents stay, and no memory is taken before it is written. Does nothing for smaller buffers, nor where the
// system is configured to "never"; a failure is ignored, since it is only advice.
void AdviseHugePages(void* begin, int64_t bytes);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_HUGE_PAGES_H_
