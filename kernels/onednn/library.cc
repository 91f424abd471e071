#include "onednn/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>

#include "common/failure.h"
#include "common/loader.h"
#include "common/pool_size.h"
#include "common/shared_object.h"
#include "onednn/abandoned_threads.h"
#include "onednn/engine.h"

namespace hlo_dispatch::onednn {

namespace {

// 3.2 is the oldest release tried; 3.0 and 3.1 differ in details of post-op memory descriptors.
constexpr int kOldestMajor = 3;
constexpr int kOldestMinor = 2;
constexpr char kRuntimeVariable[] = "HLO_DISPATCH_ONEDNN_RUNTIME";

std::mutex load_mutex;
std::atomic<const Library*> loaded{nullptr};

std::string RuntimeName(unsigned runtime) {
  switch (runtime) {
    case 1:
      return "sequential";
    case 2:
      return "openmp";
    case 4:
      return kTbb;
    case 8:
      return "threadpool";
    case 512:
      return kSycl;
    default:
      return "runtime " + std::to_string(runtime);
  }
}

const char* StatusName(Status status) {
  switch (status) {
    case kSuccess:
      return "success";
    case kOutOfMemory:
      return "out of memory";
    case kInvalidArguments:
      return "invalid arguments";
    case kUnimplemented:
      return "not implemented";
    case kLastImplementationReached:
      return "no further implementation";
    case kRuntimeError:
      return "runtime error";
    case kNotRequired:
      return "not required";
  }
  return "unknown status";
}

// oneDNN would print its errors to standard output; they reach the user through us, as sentences.
void DisableVerboseOutput(void* handle) {
  if (std::getenv("ONEDNN_VERBOSE") != nullptr || std::getenv("DNNL_VERBOSE") != nullptr) return;
  const auto set_verbose = reinterpret_cast<int (*)(int)>(dlsym(handle, "dnnl_set_verbose"));
  if (set_verbose != nullptr) set_verbose(0);
}

}  // namespace

const Library& Library::Load(const std::string& path, bool bind_threads) {
  std::lock_guard<std::mutex> lock(load_mutex);
  if (const Library* library = loaded.load()) {
    CheckIsLoaded(library->path_, path);
    return *library;
  }
  void* handle = OpenWithDependencies(path);

  std::unique_ptr<Library> library(new Library());
  library->handle_ = handle;
  library->path_ = path;
  auto version_function = reinterpret_cast<const Version* (*)()>(dlsym(handle, "dnnl_version"));
  if (version_function == nullptr) Unavailable(path + " is not oneDNN: it has no function dnnl_version");
  const Version* version = version_function();
  library->version_ =
      std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
  if (version->major != kOldestMajor || version->minor < kOldestMinor) {
    Unavailable(path + " is oneDNN " + library->version_ + "; a 3.x release from 3.2 on is needed");
  }
#define HLO_DISPATCH_FUNCTION_LOOKUP(result, name, parameters)                                     \
  library->functions_.name = reinterpret_cast<result(*) parameters>(dlsym(handle, "dnnl_" #name)); \
  if (library->functions_.name == nullptr) Unavailable(path + " is not a whole oneDNN: it lacks dnnl_" #name);
  HLO_DISPATCH_ONEDNN_FUNCTIONS(HLO_DISPATCH_FUNCTION_LOOKUP)
#undef HLO_DISPATCH_FUNCTION_LOOKUP

  DisableVerboseOutput(handle);
  library->ChooseEngine(*version);
  if (library->runtime_ == kTbb) library->tbb_ = TbbThreads::Of(handle);
  // Only a SYCL runtime computes in threads that are all its own; others compute in their caller's too.
  library->bind_threads_ = bind_threads && library->runtime_ == kSycl;
  loaded.store(library.get());
  return *library.release();  // lives as long as the process
}

void Library::ChooseEngine(const Version& version) {
  runtime_ = RuntimeName(version.cpu_runtime);
  const char* variable = std::getenv(kRuntimeVariable);
  const std::string requested = variable == nullptr ? "" : variable;
  if (!requested.empty() && requested != kSycl && requested != kTbb) {
    Unavailable(std::string(kRuntimeVariable) + " is '" + requested + "'; set it to sycl or tbb, or unset it");
  }
  if (runtime_ == kSycl && requested != kSycl) {
    try {
      if (requested.empty() && !NativeEngine::IsTested(version)) {
        Unavailable(std::string("this release was not tested so; ") + kRuntimeVariable + "=tbb tries it");
      }
      native_engine_ = std::make_unique<const NativeEngine>(functions_, handle_);
      runtime_ = kTbb;
    } catch (const Failure& failure) {
      native_engine_problem_ = std::string("over TBB it would be faster, but ") + failure.what();
    }
  }
  if (requested.empty() || requested == runtime_) return;
  Unavailable(std::string(kRuntimeVariable) + " demands " + requested + ", but oneDNN " + version_ + " (" + path_ +
              ") runs over " + runtime_ + (native_engine_problem_.empty() ? "" : ": " + native_engine_problem_) +
              "; unset it");
}

const Library& Library::Get() {
  if (const Library* library = loaded.load(std::memory_order_acquire)) return *library;
  LoadNow("oneDNN");
  if (const Library* library = loaded.load(std::memory_order_acquire)) return *library;
  Unavailable("oneDNN is not loaded in this process");
}

void* Library::Address(const std::string& name) const {
  void* address = dlsym(handle_, ("dnnl_" + name).c_str());
  if (address != nullptr) return address;
  Unsupported("oneDNN " + version_ + " (" + path_ + ") lacks dnnl_" + name);
}

Engine* Library::engine() const {
  if (Engine* engine = engine_.load(std::memory_order_acquire)) return engine;
  CheckThreads();  // a thread of the parent may hold the lock, and never releases it here
  std::lock_guard<std::mutex> lock(engine_mutex_);
  if (Engine* engine = engine_.load(std::memory_order_acquire)) return engine;
  const bool has_threads = runtime_ != "sequential" && runtime_ != "threadpool";
  if (has_threads) ThreadsStarting();
  Engine* made = nullptr;
  std::string problem;
  try {
    const Status status = MakeEngine(*this, &made);
    if (status != kSuccess) problem = StatusName(status);
  } catch (const std::exception& error) {
    problem = error.what();
  } catch (...) {
    problem = "it threw something that is no exception";
  }
  if (!problem.empty()) {
    Unavailable("oneDNN " + version_ + " (" + path_ + ") has no CPU engine: " + problem +
                (runtime_ == kSycl ? "; its SYCL runtime needs an OpenCL CPU driver, see OCL_ICD_FILENAMES" : ""));
  }
  if (has_threads) ThreadsStarted();
  engine_.store(made, std::memory_order_release);
  return made;
}

void Library::ForPool(const std::function<void()>& work) const {
  if (tbb_ == nullptr) return work();
  tbb_->Gather(PoolThreads(), /*helpers=*/0, [](const std::function<void()>&) {}, work);
}

void Library::CheckThreads() const {
  if (!ThreadsAbandoned()) return;
  Unavailable(
      "oneDNN " + version_ + " cannot compute in this process: its threads stayed in the one from which this " +
      "was forked; start processes by 'spawn' (multiprocessing.set_start_method), or fork before oneDNN is used");
}

void Library::Check(Status status, const std::string& what) const {
  if (status == kSuccess) return;
  FailureKind kind =
      status == kUnimplemented || status == kInvalidArguments ? FailureKind::kUnsupported : FailureKind::kInternal;
  throw Failure(kind, "oneDNN " + version_ + ": " + what + ": " + StatusName(status));
}

}  // namespace hlo_dispatch::onednn
