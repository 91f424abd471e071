#include "common/tbb_arenas.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "common/scheduling.h"

namespace hlo_dispatch {

using tbb_abi::Arena;
using tbb_abi::Context;
using tbb_abi::Functions;
using tbb_abi::WaitContext;

namespace {

class FunctionDelegate final : public tbb_abi::Delegate {
 public:
  explicit FunctionDelegate(const std::function<void()>& body) : body_(body) {}
  bool operator()() const override {
    body_();
    return true;
  }

 private:
  const std::function<void()>& body_;
};

// Of an arena, before another one is made. A loop's tasks are mailed to the slots of an arena, and mail of an empty
// slot stays until the arena ends: some hundred bytes for each slot in each call.
constexpr int64_t kMostCalls = 256;

}  // namespace

struct TbbArenas::ArenaSlot {
  Arena arena;  // not destroyed with this: oneTBB may be gone before
  int64_t threads = 0;
  int64_t calls = 0;
  std::mutex mutex;
  int64_t helpers = 0;  // within
};

// State that a caller shares with its helpers. Late helpers find it closed.
struct TbbArenas::Participants {
  Participants(std::shared_ptr<const Functions> tbb_functions, std::shared_ptr<ArenaSlot> arena_slot)
      : functions(std::move(tbb_functions)), slot(std::move(arena_slot)) {
    done.references = 1;
    functions->initialize(context);
  }
  ~Participants() { functions->destroy(context); }

  // What a helper does: whatever there is to do in the arena, until the caller is done. In a thread that is scheduling
  // it does nothing: its caller, or another one that waits for it, has not begun.
  void Help() {
    if (Scheduling::InThisThread()) return;
    {
      // Where all places are taken, oneTBB would give what is called here to those within, and the caller might have
      // to wait for itself.
      std::lock_guard<std::mutex> lock(slot->mutex);
      if (is_closed || slot->helpers + 1 >= slot->threads) return;
      ++slot->helpers;
    }
    const std::function<void()> work = [this] { functions->wait(done, context); };
    FunctionDelegate delegate(work);
    functions->execute(slot->arena, delegate);
    std::lock_guard<std::mutex> lock(slot->mutex);
    --slot->helpers;
  }

  void Close() {
    std::lock_guard<std::mutex> lock(slot->mutex);
    is_closed = true;
    done.references = 0;
    functions->notify_waiters(reinterpret_cast<uintptr_t>(&done));
  }

  std::shared_ptr<const Functions> functions;
  std::shared_ptr<ArenaSlot> slot;
  bool is_closed = false;
  WaitContext done;
  Context context;
};

std::shared_ptr<TbbArenas::ArenaSlot> TbbArenas::Acquire(int64_t threads) {
  {
    // A helper of the former call may not have left yet, and would keep one of this call out for all its time.
    const auto is_free = [threads](const std::shared_ptr<ArenaSlot>& slot) {
      return slot->threads == threads && !IsEntered(*slot);
    };
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(), is_free);
    if (found != idle_.end()) {
      std::shared_ptr<ArenaSlot> slot = std::move(*found);
      idle_.erase(found);
      return slot;
    }
  }
  auto slot = std::make_shared<ArenaSlot>();
  slot->threads = threads;
  slot->arena.threads = static_cast<int>(threads);
  slot->arena.slots_for_callers = static_cast<unsigned>(threads);
  functions_->initialize_arena(slot->arena);
  slot->arena.initialization = tbb_abi::kInitialized;
  return slot;
}

bool TbbArenas::IsEntered(ArenaSlot& slot) {
  std::lock_guard<std::mutex> lock(slot.mutex);
  return slot.helpers > 0;
}

void TbbArenas::Run(int64_t threads, int64_t helpers, const std::function<void(std::function<void()>)>& call,
                    const std::function<void()>& body) {
  std::shared_ptr<ArenaSlot> slot = Acquire(threads);
  std::shared_ptr<Participants> participants;
  if (helpers > 0) {
    participants = std::make_shared<Participants>(functions_, slot);
    const Scheduling scheduling;
    try {
      for (int64_t i = 0; i < helpers; ++i) call([participants] { participants->Help(); });
    } catch (...) {
      // Fewer helpers, then.
    }
  }
  std::exception_ptr failure;
  const std::function<void()> guarded = [&] {
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  FunctionDelegate delegate(guarded);
  functions_->execute(slot->arena, delegate);
  if (participants != nullptr) participants->Close();
  if (++slot->calls < kMostCalls || IsEntered(*slot)) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(slot));
  } else {
    functions_->terminate_arena(slot->arena);
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace hlo_dispatch
