#include "common/tbb_arenas.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "common/scheduling.h"
#include "common/tbb_functions.h"

namespace hlo_dispatch {

namespace {

// Of an arena, before another one is made. A loop's tasks are mailed to the slots of an arena, and mail of an empty
// slot stays until the arena ends: some hundred bytes for each slot in each call.
constexpr int64_t kMaxCalls = 256;

}  // namespace

struct TbbArenas::ArenaSlot {
  explicit ArenaSlot(int64_t threads_of_arena)
      : threads(threads_of_arena),
        arena(new tbb::task_arena(static_cast<int>(threads), /*reserved_slots=*/static_cast<unsigned>(threads))) {
    arena->initialize();
  }
  const int64_t threads;
  tbb::task_arena* const arena;  // not deleted with this: oneTBB may be gone before
  int64_t calls = 0;
  std::mutex mutex;
  int64_t helpers = 0;  // within
};

// State that a caller shares with its helpers. Late helpers find it closed.
struct TbbArenas::Participants {
  explicit Participants(std::shared_ptr<ArenaSlot> arena_slot) : slot(std::move(arena_slot)) {}

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
    slot->arena->execute([this] { tbb::detail::d1::wait(done, context); });
    std::lock_guard<std::mutex> lock(slot->mutex);
    --slot->helpers;
  }

  void Close() {
    std::lock_guard<std::mutex> lock(slot->mutex);
    is_closed = true;
    done.release();
  }

  std::shared_ptr<ArenaSlot> slot;
  bool is_closed = false;
  tbb::detail::d1::wait_context done{1};
  tbb::task_group_context context{tbb::task_group_context::isolated};
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
  return std::make_shared<ArenaSlot>(threads);
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
    participants = std::make_shared<Participants>(slot);
    const Scheduling scheduling;
    try {
      for (int64_t i = 0; i < helpers; ++i) call([participants] { participants->Help(); });
    } catch (...) {
      // Fewer helpers, then.
    }
  }
  std::exception_ptr failure;
  slot->arena->execute([&] {
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  if (participants != nullptr) participants->Close();
  if (++slot->calls < kMaxCalls || IsEntered(*slot)) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(slot));
  } else {
    delete slot->arena;
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace hlo_dispatch
