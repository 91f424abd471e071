#include "onednn/engine.h"

#include <pthread.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "common/bound_threads.h"
#include "onednn/library.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr int64_t kSize = 256;  // of the product's three dimensions: 17 million multiply-adds, enough for any thread
constexpr int kMostProducts = 50;
constexpr unsigned kFlushSubnormals = 0x8040;  // MXCSR: results to zero, and operands

// The object that `make` puts where it is told to; nothing where it fails.
template <typename Owned, typename Make>
Owned Made(Make make) {
  typename Owned::pointer object = nullptr;
  return Owned(make(&object) == kSuccess ? object : nullptr);
}

// Runs a product of square matrices over and over, until there are so many threads of the library's name besides
// this one. Returns what there is of them when nothing more comes of it.
std::vector<pid_t> WakeThreads(const Functions& onednn, Engine* engine, size_t count) {
  const int64_t shape[] = {kSize, kSize}, strides[] = {kSize, 1};
  auto square = Made<OwnedMemoryDescriptor>([&](MemoryDescriptor** made) {
    return onednn.memory_desc_create_with_strides(made, 2, shape, kF32, strides);
  });
  if (square == nullptr) return {};
  auto product = Made<OwnedDescriptor>([&](PrimitiveDescriptor** made) {
    const MemoryDescriptor* any = square.get();
    return onednn.matmul_primitive_desc_create(made, engine, any, any, nullptr, any, nullptr);
  });
  if (product == nullptr) return {};
  auto primitive =
      Made<OwnedPrimitive>([&](PrimitiveHandle** made) { return onednn.primitive_create(made, product.get()); });
  Stream* stream = nullptr;  // kept, as all streams are
  if (primitive == nullptr || onednn.stream_create(&stream, engine, kInOrder) != kSuccess) return {};

  std::vector<float> numbers[3];
  OwnedMemory memories[3];
  std::vector<Argument> arguments;
  const int indices[] = {kArgumentSource, kArgumentWeights, kArgumentDestination};
  for (int i = 0; i < 3; ++i) {
    numbers[i].assign(kSize * kSize, 1.0f);
    memories[i] = Made<OwnedMemory>([&](Memory** made) {
      return onednn.memory_create(made, square.get(), engine, numbers[i].data());
    });
    if (memories[i] == nullptr) return {};
    arguments.push_back({indices[i], memories[i].get()});
  }
  std::vector<pid_t> found;
  for (int i = 0; i < kMostProducts && found.size() < count; ++i) {
    if (onednn.primitive_execute(primitive.get(), stream, 3, arguments.data()) != kSuccess) break;
    if (onednn.stream_wait(stream) != kSuccess) break;
    found = ThreadsNamed(kThreadName);
    found.erase(std::remove(found.begin(), found.end(), gettid()), found.end());
  }
  return found;
}

}  // namespace

Status MakeEngine(const Library& library, Engine** engine) {
  Status status = kRuntimeError;
  std::thread([&] {
    pthread_setname_np(pthread_self(), kThreadName);
    // As in XLA's own threads: the library's inherit this one's control register, too.
    _mm_setcsr(_mm_getcsr() | kFlushSubnormals);
    status = library.functions().engine_create(engine, kCpu, 0);
    if (status != kSuccess || !library.binds_threads()) return;
    const std::vector<int> processors = AllowedProcessors();
    BindEach(WakeThreads(library.functions(), *engine, processors.size()), processors);
  }).join();
  return status;
}

}  // namespace hlo_dispatch::onednn
