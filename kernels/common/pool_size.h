// Size of XLA's thread pool, for planning, where no call provides the pool.
#ifndef HLO_DISPATCH_COMMON_POOL_SIZE_H_
#define HLO_DISPATCH_COMMON_POOL_SIZE_H_

#include <cstdint>

namespace hlo_dispatch {

// As XLA's CPU client reckons it (DefaultThreadPoolSize, kMaxIntraOpThreads): what PJRT_NPROC or else NPROC says, or
// one for each processor that this process may use. A quota of processor time does not count. Asked once;
// process/machine.py does the same.
int64_t PoolThreads();

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_POOL_SIZE_H_
