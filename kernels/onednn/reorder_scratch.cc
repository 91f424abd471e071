#include "onednn/reorder_scratch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <set>
#include <vector>

namespace hlo_dispatch::onednn {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMostKept = size_t{128} << 20;
constexpr size_t kPartOfMachine = 64;

struct Piece {
  void* memory = nullptr;
  size_t bytes = 0;
};

size_t Rounded(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

Piece Allocate(size_t bytes) {
  bytes = Rounded(bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: fewer pages to look up, where the system has large ones
  return {memory, bytes};
}

void Free(const Piece& piece) {
  if (piece.memory != nullptr) munmap(piece.memory, piece.bytes);
}

size_t MostKept() {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || bytes <= 0) return kMostKept;
  return std::min(kMostKept, static_cast<size_t>(pages) / kPartOfMachine * static_cast<size_t>(bytes));
}

// The idle pieces, in the order in which they were given back; never destroyed, as executables may outlive every
// static object.
class Pool {
 public:
  static Pool& Get() {
    static auto* pool = new Pool();
    return *pool;
  }

  void Need(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    needs_.insert(Rounded(bytes));
  }

  void NeedNoMore(size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      needs_.erase(needs_.find(Rounded(bytes)));
    }
    FreeSurplus();
  }

  Piece Take(size_t bytes) {
    Piece piece;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (size_t i = idle_.size(); i > 0 && piece.memory == nullptr; --i) {
        if (idle_[i - 1].bytes >= bytes) piece = Remove(i - 1);
      }
      if (piece.memory == nullptr && !idle_.empty()) piece = Remove(idle_.size() - 1);
    }
    if (piece.bytes >= bytes) return piece;
    Free(piece);
    return Allocate(bytes);
  }

  void GiveBack(const Piece& piece) {
    try {
      std::lock_guard<std::mutex> lock(mutex_);
      idle_.push_back(piece);
      kept_ += piece.bytes;
    } catch (const std::bad_alloc&) {
      return Free(piece);
    }
    FreeSurplus();
  }

 private:
  Pool() : most_kept_(MostKept()) {}

  // These two want the lock.
  Piece Remove(size_t index) {
    const Piece piece = idle_[index];
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(index));
    kept_ -= piece.bytes;
    return piece;
  }

  // A piece that is not to be kept, if there is one: too large for anybody, or the one that was idle longest.
  Piece RemoveSurplus() {
    const size_t largest = needs_.empty() ? 0 : *needs_.rbegin();
    for (size_t i = 0; i < idle_.size(); ++i) {
      if (idle_[i].bytes > std::min(largest, most_kept_)) return Remove(i);
    }
    return kept_ > most_kept_ ? Remove(0) : Piece();
  }

  // Without the lock: the operating system takes its time over large ones.
  void FreeSurplus() {
    for (;;) {
      Piece piece;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        piece = RemoveSurplus();
      }
      if (piece.memory == nullptr) return;
      Free(piece);
    }
  }

  const size_t most_kept_;
  std::mutex mutex_;
  std::vector<Piece> idle_;
  size_t kept_ = 0;              // bytes of all that are idle
  std::multiset<size_t> needs_;  // of the executables that there are
};

size_t Bytes(int64_t bytes) { return bytes <= 0 ? 0 : static_cast<size_t>(bytes); }

}  // namespace

PackingNeed::PackingNeed(int64_t bytes) : bytes_(Bytes(bytes)) {
  if (bytes_ > 0) Pool::Get().Need(bytes_);
}

PackingNeed::~PackingNeed() {
  if (bytes_ > 0) Pool::Get().NeedNoMore(bytes_);
}

PackingLease::PackingLease(int64_t bytes) {
  if (bytes <= 0) return;
  const Piece piece = Pool::Get().Take(Bytes(bytes));
  memory_ = piece.memory;
  bytes_ = piece.bytes;
}

PackingLease::~PackingLease() {
  if (memory_ != nullptr) Pool::Get().GiveBack({memory_, bytes_});
}

}  // namespace hlo_dispatch::onednn
