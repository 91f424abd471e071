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
constexpr size_t kMaxIdleBytes = size_t{128} << 20;
constexpr size_t kMachineFraction = 64;

struct Piece {
  void* memory = nullptr;
  size_t bytes = 0;
};

size_t Rounded(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

Piece Allocate(size_t bytes) {
  bytes = Rounded(bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: fewer TLB misses where the system has huge pages
  return {memory, bytes};
}

void Free(const Piece& piece) {
  if (piece.memory != nullptr) munmap(piece.memory, piece.bytes);
}

size_t MaxIdleBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || bytes <= 0) return kMaxIdleBytes;
  return std::min(kMaxIdleBytes, static_cast<size_t>(pages) / kMachineFraction * static_cast<size_t>(bytes));
}

// Pool of idle blocks, in the order of their release; never destroyed, as executables may outlive every static object.
class Pool {
 public:
  static Pool& Get() {
    static auto* pool = new Pool();
    return *pool;
  }

  void Reserve(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    reservations_.insert(Rounded(bytes));
  }

  void Unreserve(size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      reservations_.erase(reservations_.find(Rounded(bytes)));
    }
    FreeSurplus();
  }

  Piece Acquire(size_t bytes) {
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

  void Release(const Piece& piece) {
    try {
      std::lock_guard<std::mutex> lock(mutex_);
      idle_.push_back(piece);
      idle_bytes_ += piece.bytes;
    } catch (const std::bad_alloc&) {
      return Free(piece);
    }
    FreeSurplus();
  }

 private:
  Pool() : max_idle_bytes_(MaxIdleBytes()) {}

  // Both require the lock.
  Piece Remove(size_t index) {
    const Piece piece = idle_[index];
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(index));
    idle_bytes_ -= piece.bytes;
    return piece;
  }

  // A block to free, if there is one: larger than any reservation, or the longest idle one over the limit.
  Piece RemoveSurplus() {
    const size_t largest = reservations_.empty() ? 0 : *reservations_.rbegin();
    for (size_t i = 0; i < idle_.size(); ++i) {
      if (idle_[i].bytes > std::min(largest, max_idle_bytes_)) return Remove(i);
    }
    return idle_bytes_ > max_idle_bytes_ ? Remove(0) : Piece();
  }

  // Without the lock: unmapping large blocks is slow.
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

  const size_t max_idle_bytes_;
  std::mutex mutex_;
  std::vector<Piece> idle_;
  size_t idle_bytes_ = 0;               // bytes of all that are idle
  std::multiset<size_t> reservations_;  // of the executables that there are
};

size_t Bytes(int64_t bytes) { return bytes <= 0 ? 0 : static_cast<size_t>(bytes); }

}  // namespace

ReorderScratchReservation::ReorderScratchReservation(int64_t bytes) : bytes_(Bytes(bytes)) {
  if (bytes_ > 0) Pool::Get().Reserve(bytes_);
}

ReorderScratchReservation::~ReorderScratchReservation() {
  if (bytes_ > 0) Pool::Get().Unreserve(bytes_);
}

ReorderScratchLease::ReorderScratchLease(int64_t bytes) {
  if (bytes <= 0) return;
  const Piece piece = Pool::Get().Acquire(Bytes(bytes));
  memory_ = piece.memory;
  bytes_ = piece.bytes;
}

ReorderScratchLease::~ReorderScratchLease() {
  if (memory_ != nullptr) Pool::Get().Release({memory_, bytes_});
}

}  // namespace hlo_dispatch::onednn
