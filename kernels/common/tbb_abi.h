// What oneTBB's headers compile into every program: libtbb.so.12 keeps it as it is for all of them, so that none of
// those headers is needed here.
//
// As in oneapi/tbb/detail/_task.h, oneapi/tbb/task_group.h and oneapi/tbb/task_arena.h: members, their order and their
// sizes.
#ifndef HLO_DISPATCH_COMMON_TBB_ABI_H_
#define HLO_DISPATCH_COMMON_TBB_ABI_H_

#include <atomic>
#include <cstdint>

namespace hlo_dispatch::tbb_abi {

struct ExecutionData;

class alignas(64) Task {
 protected:
  virtual ~Task() = default;

 public:
  virtual Task* execute(ExecutionData& data) = 0;
  virtual Task* cancel(ExecutionData& data) = 0;

 private:
  uint64_t reserved_[7] = {};
};
static_assert(sizeof(Task) == 64, "as task_alignment says");

struct alignas(64) Context {
  uint64_t control_register = 0;
  uint32_t is_cancelled = 0;
  uint8_t version = 1;
  uint8_t traits = 0;  // isolated: nothing that somebody else cancels cancels this
  uint8_t may_have_children = 0;
  uint8_t state = 0;
  void* links[5] = {};  // parent, list, node, exception
  void* caller = nullptr;
  uintptr_t name = 0;
  char padding[56] = {};
};
static_assert(sizeof(Context) == 128, "as max_nfs_size says");

struct WaitContext {
  uint64_t version = 1;
  std::atomic<uint64_t> references{0};
};

// What a thread does inside of an arena.
class Delegate {
 public:
  virtual bool operator()() const = 0;
  virtual ~Delegate() = default;
};

struct Arena {
  intptr_t version_and_traits = 1;  // the last members are there
  std::atomic<int> initialization{0};
  std::atomic<void*> inside{nullptr};
  int threads = 1;
  unsigned slots_for_callers = 1;      // among them; TBB's own workers take none of these
  int priority = 2 * (INT32_MAX / 4);  // the middle one
  int numa_node = -1;                  // these three: any
  int kind_of_core = -1;
  int threads_of_core = -1;
};
static_assert(sizeof(Arena) == 48, "as task_arena_base");
inline constexpr int kInitialized = 2;

struct Functions {
  int (*runtime_interface_version)();
  void (*initialize)(Context&);
  void (*destroy)(Context&);
  void (*spawn)(Task&, Context&);
  void (*execute_and_wait)(Task&, Context&, WaitContext&, Context&);
  void (*wait)(WaitContext&, Context&);
  void (*notify_waiters)(uintptr_t);
  int (*max_concurrency)(const Arena*);  // null: of the calling thread's arena
  void (*initialize_arena)(Arena&);
  void (*terminate_arena)(Arena&);
  void (*execute)(Arena&, Delegate&);
};

}  // namespace hlo_dispatch::tbb_abi

#endif  // HLO_DISPATCH_COMMON_TBB_ABI_H_
