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

class Inside final : public tbb_abi::Delegate {
 public:
  explicit Inside(const std::function<void()>& body) : body_(body) {}
  bool operator()() const override {
    body_();
    return true;
  }

 private:
  const std::function<void()>& body_;
};

// Of an arena, before another one is made. A loop's pieces are sent to the places of an arena, and what is sent to a
// place that nobody takes lies there until the arena ends: some hundred bytes for each place in each call.
constexpr int64_t kMostCalls = 256;

}  // namespace

struct TbbArenas::Place {
  Arena arena;  // not destroyed with this: oneTBB may be gone before
  int64_t threads = 0;
  int64_t calls = 0;
  std::mutex mutex;
  int64_t helpers = 0;  // within
};

// What a caller and its helpers share. Helpers that come when all is done find it closed.
struct TbbArenas::Gathering {
  Gathering(std::shared_ptr<const Functions> given, std::shared_ptr<Place> taken)
      : functions(std::move(given)), place(std::move(taken)) {
    done.references = 1;
    functions->initialize(context);
  }
  ~Gathering() { functions->destroy(context); }

  // What a helper does: whatever there is to do in the arena, until the caller is done. In a thread that is scheduling
  // it does nothing: its caller, or another one that waits for it, has not begun.
  void Help() {
    if (Scheduling::InThisThread()) return;
    {
      // Where all places are taken, oneTBB would give what is called here to those within, and the caller might have
      // to wait for itself.
      std::lock_guard<std::mutex> lock(place->mutex);
      if (is_closed || place->helpers + 1 >= place->threads) return;
      ++place->helpers;
    }
    const std::function<void()> work = [this] { functions->wait(done, context); };
    Inside inside(work);
    functions->execute(place->arena, inside);
    std::lock_guard<std::mutex> lock(place->mutex);
    --place->helpers;
  }

  void Close() {
    std::lock_guard<std::mutex> lock(place->mutex);
    is_closed = true;
    done.references = 0;
    functions->notify_waiters(reinterpret_cast<uintptr_t>(&done));
  }

  std::shared_ptr<const Functions> functions;
  std::shared_ptr<Place> place;
  bool is_closed = false;
  WaitContext done;
  Context context;
};

std::shared_ptr<TbbArenas::Place> TbbArenas::Take(int64_t threads) {
  {
    // A helper of the former call may not have left yet, and would keep one of this call out for all its time.
    const auto is_free = [threads](const std::shared_ptr<Place>& place) {
      return place->threads == threads && !IsEntered(*place);
    };
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(), is_free);
    if (found != idle_.end()) {
      std::shared_ptr<Place> place = std::move(*found);
      idle_.erase(found);
      return place;
    }
  }
  auto place = std::make_shared<Place>();
  place->threads = threads;
  place->arena.threads = static_cast<int>(threads);
  place->arena.places_for_callers = static_cast<unsigned>(threads);
  functions_->initialize_arena(place->arena);
  place->arena.initialization = tbb_abi::kInitialized;
  return place;
}

bool TbbArenas::IsEntered(Place& place) {
  std::lock_guard<std::mutex> lock(place.mutex);
  return place.helpers > 0;
}

void TbbArenas::Run(int64_t threads, int64_t helpers, const std::function<void(std::function<void()>)>& call,
                    const std::function<void()>& body) {
  std::shared_ptr<Place> place = Take(threads);
  std::shared_ptr<Gathering> gathering;
  if (helpers > 0) {
    gathering = std::make_shared<Gathering>(functions_, place);
    const Scheduling scheduling;
    try {
      for (int64_t i = 0; i < helpers; ++i) call([gathering] { gathering->Help(); });
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
  Inside inside(guarded);
  functions_->execute(place->arena, inside);
  if (gathering != nullptr) gathering->Close();
  if (++place->calls < kMostCalls || IsEntered(*place)) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(place));
  } else {
    functions_->terminate_arena(place->arena);
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace hlo_dispatch
