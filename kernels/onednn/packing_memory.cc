#include "onednn/packing_memory.h"

#include <sys/mman.h>

#include <mutex>
#include <new>
#include <vector>

namespace hlo_dispatch::onednn {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMostKept = size_t{128} << 20;  // a larger piece goes back to the operating system after its call

struct Piece {
  void* memory = nullptr;
  size_t bytes = 0;
};

Piece Allocate(size_t bytes) {
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: fewer pages to look up, where the system has large ones
  return {memory, bytes};
}

void Free(const Piece& piece) {
  if (piece.memory != nullptr) munmap(piece.memory, piece.bytes);
}

// One piece per execution under way, at most as many as XLA has threads; never destroyed, as executables may
// outlive every static object.
class Pool {
 public:
  static Pool& Get() {
    static auto* pool = new Pool();
    return *pool;
  }

  Piece Take(size_t bytes) {
    Piece piece;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        piece = idle_.back();
        idle_.pop_back();
      }
    }
    if (piece.bytes >= bytes) return piece;
    Free(piece);
    return Allocate(bytes);
  }

  void GiveBack(const Piece& piece) {
    if (piece.bytes > kMostKept) return Free(piece);
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(piece);
  }

 private:
  std::mutex mutex_;
  std::vector<Piece> idle_;
};

}  // namespace

PackingLease::PackingLease(int64_t bytes) {
  if (bytes <= 0) return;
  const Piece piece = Pool::Get().Take(static_cast<size_t>(bytes));
  memory_ = piece.memory;
  bytes_ = piece.bytes;
}

PackingLease::~PackingLease() {
  if (memory_ != nullptr) Pool::Get().GiveBack({memory_, bytes_});
}

}  // namespace hlo_dispatch::onednn
