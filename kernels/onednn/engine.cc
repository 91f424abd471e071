#include "onednn/engine.h"

#include <pthread.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/bound_threads.h"
#include "common/lent_variable.h"
#include "common/signal_actions.h"
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
        [&](Memory** made) { return onednn.memory_create(made, square.get(), engine, numbers[i].data()); });
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

// Where Intel's OpenCL CPU driver is, which oneDNN's wheel brings along: beside the library. Empty if it is not.
std::string DriverBeside(const std::string& library) {
  const std::string driver = library.substr(0, library.rfind('/') + 1) + "libintelocl.so";
  return access(driver.c_str(), R_OK) == 0 ? driver : "";
}

// What the engine's own thread does.
Status MakeEngineHere(const Library& library, const std::vector<int>& processors, Engine** engine) {
  pthread_setname_np(pthread_self(), kThreadName);
  LeaveSignalsToOthers();
  // Whoever asks for the engine first may be kept on fewer processors than its process.
  RunOn(processors);
  // As in XLA's own threads: the library's inherit this one's control register, too.
  _mm_setcsr(_mm_getcsr() | kFlushSubnormals);
  const Status status = library.functions().engine_create(engine, kCpu, 0);
  if (status != kSuccess || !library.binds_threads()) return status;
  BindEach(WakeThreads(library.functions(), *engine, processors.size()), processors);
  return status;
}

}  // namespace

Status MakeEngine(const Library& library, Engine** engine) {
  const SignalActions signals;
  // These are read once, while the engine is created: the runtime's loader asks where drivers are, and the driver
  // whether it shall print the stack when a signal ends the process, for which it takes over their handlers.
  const std::string driver = DriverBeside(library.path());
  std::optional<LentVariable> drivers;
  if (!driver.empty()) drivers.emplace("OCL_ICD_FILENAMES", driver);
  const LentVariable no_stack_trace("CL_DISABLE_STACK_TRACE", "1");
  // And this one SYCL's adapter for Intel's GPUs sets by itself, to the same, and leaves it there.
  const LentVariable management("ZES_ENABLE_SYSMAN", "1");

  Status status = kRuntimeError;
  std::exception_ptr thrown;
  const std::vector<int> processors = AllowedProcessors();
  std::thread([&] {
    try {
      status = MakeEngineHere(library, processors, engine);
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return status;
}

}  // namespace hlo_dispatch::onednn
