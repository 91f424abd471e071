// oneTBB by its own headers, without linking it: the functions that those call are found at run time, in the oneTBB
// that another library has loaded.
#ifndef HLO_DISPATCH_COMMON_TBB_FUNCTIONS_H_
#define HLO_DISPATCH_COMMON_TBB_FUNCTIONS_H_

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

namespace hlo_dispatch {

// Looks the functions up in `library`, a handle of dlopen's, and what that was linked with. False where they are
// missing, of another major version than the headers, or of another oneTBB than a call before this one found.
bool FindTbbFunctions(void* library);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_TBB_FUNCTIONS_H_
