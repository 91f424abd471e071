#include "common/tbb_functions.h"

#include <dlfcn.h>
#include <oneapi/tbb/version.h>

#include <string>

namespace {

namespace d1 = tbb::detail::d1;

// The layout that every libtbb.so.12 has: a release of the headers with another one would need another library.
static_assert(sizeof(d1::task) == 64 && sizeof(d1::task_group_context) == 128 && sizeof(d1::wait_context) == 16 &&
              sizeof(d1::task_arena) == 48 && TBB_INTERFACE_VERSION_MAJOR == 12);

struct Functions {
  void (*initialize_context)(d1::task_group_context&);
  void (*destroy)(d1::task_group_context&);
  void (*spawn)(d1::task&, d1::task_group_context&);
  void (*execute_and_wait)(d1::task&, d1::task_group_context&, d1::wait_context&, d1::task_group_context&);
  void (*wait)(d1::wait_context&, d1::task_group_context&);
  void (*notify_waiters)(std::uintptr_t);
  void (*initialize_arena)(d1::task_arena_base&);
  void (*terminate)(d1::task_arena_base&);
  void (*execute)(d1::task_arena_base&, d1::delegate_base&);
  int (*max_concurrency)(const d1::task_arena_base*);
};

Functions functions;

// `name` is a function's of tbb::detail::r1, as the linker has it behind the namespaces.
template <typename Function>
bool Find(void* library, const std::string& name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, ("_ZN3tbb6detail2r1" + name).c_str()));
  return function != nullptr;
}

bool FindAll(void* library, Functions& f) {
  const std::string context = "RNS0_2d118task_group_contextE", arena = "RNS0_2d115task_arena_baseE";
  return Find(library, "10initializeE" + context, f.initialize_context) &&
         Find(library, "7destroyE" + context, f.destroy) &&
         Find(library, "5spawnERNS0_2d14taskERNS2_18task_group_contextE", f.spawn) &&
         Find(library, "16execute_and_waitERNS0_2d14taskERNS2_18task_group_contextERNS2_12wait_contextES6_",
              f.execute_and_wait) &&
         Find(library, "4waitERNS0_2d112wait_contextERNS2_18task_group_contextE", f.wait) &&
         Find(library, "14notify_waitersEm", f.notify_waiters) &&
         Find(library, "10initializeE" + arena, f.initialize_arena) &&
         Find(library, "9terminateE" + arena, f.terminate) &&
         Find(library, "7executeE" + arena + "RNS2_13delegate_baseE", f.execute) &&
         Find(library, "15max_concurrencyEPKNS0_2d115task_arena_baseE", f.max_concurrency);
}

}  // namespace

// What the headers call. These are local to this library (c_api/exports.map): nobody else's calls end here.
namespace tbb::detail::r1 {

void initialize(d1::task_group_context& context) { functions.initialize_context(context); }
void destroy(d1::task_group_context& context) { functions.destroy(context); }
void spawn(d1::task& task, d1::task_group_context& context) { functions.spawn(task, context); }
void execute_and_wait(d1::task& task, d1::task_group_context& task_context, d1::wait_context& wait_context,
                      d1::task_group_context& context) {
  functions.execute_and_wait(task, task_context, wait_context, context);
}
void wait(d1::wait_context& wait_context, d1::task_group_context& context) { functions.wait(wait_context, context); }
void notify_waiters(std::uintptr_t address) { functions.notify_waiters(address); }
void initialize(d1::task_arena_base& arena) { functions.initialize_arena(arena); }
void terminate(d1::task_arena_base& arena) { functions.terminate(arena); }
void execute(d1::task_arena_base& arena, d1::delegate_base& body) { functions.execute(arena, body); }
int max_concurrency(const d1::task_arena_base* arena) { return functions.max_concurrency(arena); }

}  // namespace tbb::detail::r1

namespace hlo_dispatch {

bool FindTbbFunctions(void* library) {
  const auto version = reinterpret_cast<int (*)()>(dlsym(library, "TBB_runtime_interface_version"));
  Functions found;
  if (version == nullptr || version() / 1000 != TBB_INTERFACE_VERSION_MAJOR || !FindAll(library, found)) return false;
  if (functions.spawn != nullptr) return functions.spawn == found.spawn;
  functions = found;
  return true;
}

}  // namespace hlo_dispatch
