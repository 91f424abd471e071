#include "onednn/engine.h"

#include <pthread.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/bound_threads.h"
#include "common/scoped_environment_variable.h"
#include "common/signal_handler_guard.h"
#include "onednn/library.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr int64_t kSize = 256;  // of the product's three dimensions: 17 million multiply-adds, enough for any thread
constexpr int kMaxProducts = 50;
constexpr unsigned kFlushSubnormals = 0x8040;  // MXCSR: results to zero, and operands

// The object that `make` returns through its argument; empty where it fails.
template <typename Owned, typename Make>
Owned Made(Make make) {
  typename Owned::pointer object = nullptr;
  return Owned(make(&object) == kSuccess ? object : nullptr);
}

// Runs a product of square matrices over and over, until there are so many threads of the library's name besides this
// one. Returns those that exist when no more are started.
std::vector<pid_t> WakeThreads(const Library& library, Engine* engine, size_t count) {
  const Functions& onednn = library.functions();
  const int64_t shape[] = {kSize, kSize}, strides[] = {kSize, 1};
  auto square = Made<OwnedMemoryDescriptor>(
      [&](MemoryDescriptor** made) { return onednn.memory_desc_create_with_strides(made, 2, shape, kF32, strides); });
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
    memories[i] = Made<OwnedMemory>(
        [&](Memory** made) { return library.CreateMemory(made, square.get(), engine, numbers[i].data()); });
    if (memories[i] == nullptr) return {};
    arguments.push_back({indices[i], memories[i].get()});
  }
  std::vector<pid_t> found;
  for (int i = 0; i < kMaxProducts && found.size() < count; ++i) {
    if (onednn.primitive_execute(primitive.get(), stream, 3, arguments.data()) != kSuccess) break;
    if (onednn.stream_wait(stream) != kSuccess) break;
    found = ThreadsNamed(kThreadName);
    found.erase(std::remove(found.begin(), found.end(), gettid()), found.end());
  }
  return found;
}

// Path of Intel's OpenCL CPU driver, which oneDNN's wheel installs beside the library; empty if it is missing.
std::string BundledDriver(const std::string& library) {
  const std::string driver = library.substr(0, library.rfind('/') + 1) + "libintelocl.so";
  return access(driver.c_str(), R_OK) == 0 ? driver : "";
}

// What the engine's own thread does.
Status MakeEngineHere(const Library& library, Engine** engine) {
  const std::vector<int> processors = AllowedProcessors();
  pthread_setname_np(pthread_self(), kThreadName);
  BlockHostSignals();
  // The thread that needs the engine first may be bound to fewer processors than its process.
  RunOn(processors);
  // As in XLA's own threads: the library's inherit this one's control register, too.
  _mm_setcsr(_mm_getcsr() | kFlushSubnormals);
  if (library.native_engine() != nullptr) {
    *engine = library.native_engine()->engine();
  } else if (const Status status = library.functions().engine_create(engine, kCpu, 0); status != kSuccess) {
    return status;
  }
  if (library.runtime() == kTbb) {
    // A caller computes with the workers, one for each other processor. Made by a caller they would inherit what this
    // thread was just given.
    WakeThreads(library, *engine, processors.size() - 1);
  } else if (library.binds_threads()) {
    BindEach(WakeThreads(library, *engine, processors.size()), processors);
  }
  return kSuccess;
}

// What SYCL's loader and the drivers below read and write once, when they are first asked for: by the public engine,
// and with the native one by the first primitive, whose description counts the engines that there could be.
struct SyclEnvironment {
  // The public engine needs the driver from the wheel.
  explicit SyclEnvironment(const Library& library) {
    const std::string driver = library.native_engine() == nullptr ? BundledDriver(library.path()) : "";
    if (!driver.empty()) drivers.emplace("OCL_ICD_FILENAMES", driver);
  }
  std::optional<ScopedEnvironmentVariable> drivers;
  // Whether the driver prints the stack when a signal ends the process, for which it takes over their handlers.
  ScopedEnvironmentVariable no_stack_trace{"CL_DISABLE_STACK_TRACE", "1"};
  // And this one SYCL's adapter for Intel's GPUs sets by itself, to the same, and leaves it there.
  ScopedEnvironmentVariable management{"ZES_ENABLE_SYSMAN", "1"};
};

}  // namespace

Status MakeEngine(const Library& library, Engine** engine) {
  const SignalHandlerGuard signals;
  std::optional<SyclEnvironment> variables;
  if (library.native_engine() != nullptr || library.runtime() == kSycl) variables.emplace(library);

  std::promise<Status> made;
  std::future<Status> status = made.get_future();
  const bool stays = library.runtime() == kTbb;  // TBB dismisses its workers when no thread that called it is left
  std::thread thread([&library, engine, stays, made = std::move(made)]() mutable {
    try {
      made.set_value(MakeEngineHere(library, engine));
    } catch (...) {
      made.set_exception(std::current_exception());
    }
    while (stays) pause();
  });
  stays ? thread.detach() : thread.join();
  return status.get();
}

}  // namespace hlo_dispatch::onednn
