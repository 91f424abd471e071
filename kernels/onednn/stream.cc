#include "onednn/stream.h"

#include <mutex>
#include <vector>

#include "onednn/library.h"

namespace hlo_dispatch::onednn {

namespace {

// Streams are shared by all primitives: one per execution under way, at most as many as XLA has threads. They
// are never destroyed, because the runtime below them may already be gone when the process ends.
class StreamPool {
 public:
  static StreamPool& Get() {
    static auto* pool = new StreamPool();
    return *pool;
  }

  Stream* Take() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        Stream* stream = idle_.back();
        idle_.pop_back();
        return stream;
      }
    }
    const Library& library = Library::Get();
    Stream* stream = nullptr;
    library.Check(library.functions().stream_create(&stream, library.engine(), kInOrder), "creating a stream");
    return stream;
  }

  void Release(Stream* stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::vector<Stream*> idle_;
};

}  // namespace

StreamLease::StreamLease() : stream_(StreamPool::Get().Take()) {}

StreamLease::~StreamLease() {
  // A failed stream is not reused.
  if (!busy_ || Library::Get().functions().stream_wait(stream_) == kSuccess) StreamPool::Get().Release(stream_);
}

void StreamLease::Wait(const std::string& what) {
  const Library& library = Library::Get();
  const Status status = library.functions().stream_wait(stream_);
  if (status != kSuccess) library.Check(status, "waiting for " + what);
  busy_ = false;
}

}  // namespace hlo_dispatch::onednn
