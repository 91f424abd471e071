// The oneDNN of this process: opened once, by the path Python found for it, and never closed (compiled
// executables hold primitives until the very end of the process).
#ifndef HLO_DISPATCH_ONEDNN_LIBRARY_H_
#define HLO_DISPATCH_ONEDNN_LIBRARY_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/tbb_threads.h"
#include "onednn/api.h"
#include "onednn/native_engine.h"

namespace hlo_dispatch::onednn {

// Runtimes with special handling.
inline constexpr char kSycl[] = "sycl";
inline constexpr char kTbb[] = "tbb";

class Library {
 public:
  // Opens the file; throws Failure(kUnavailable) when it is missing, not oneDNN, older than 3.2, or another one
  // than the process already uses, or does not run as HLO_DISPATCH_ONEDNN_RUNTIME demands. Loading the same file again
  // is harmless.
  // Its threads are bound to processors, if so wished, when the engine is made (engine.h).
  static const Library& Load(const std::string& path, bool bind_threads);
  // The library, loaded now where it is not yet; throws Failure(kUnavailable) where that fails.
  static const Library& Get();

  const Functions& functions() const { return functions_; }
  // A function that only one kernel family calls (its name without dnnl_); throws Failure(kUnsupported) where this
  // oneDNN lacks it.
  template <typename Signature>
  Signature* Function(const std::string& name) const {
    return reinterpret_cast<Signature*>(Address(name));
  }
  const std::string& path() const { return path_; }
  const std::string& version() const { return version_; }
  // How its engine runs work on the CPU: "sycl", "openmp", "tbb", "threadpool", "sequential". A SYCL build's native
  // engine runs on TBB.
  const std::string& runtime() const { return runtime_; }
  // Where the public engine of a SYCL build is used: why the native one is not, else empty.
  const std::string& native_engine_problem() const { return native_engine_problem_; }

  bool binds_threads() const { return bind_threads_; }

  // The CPU engine, created at the first use (over SYCL that takes 30-200 ms) and kept.
  Engine* engine() const;

  // The native engine of a SYCL build where that is used, else nullptr.
  const NativeEngine* native_engine() const { return native_engine_.get(); }

  // The threads that it computes on, where those are oneTBB's and loops of ours can run on them; else nullptr.
  const TbbThreads* tbb() const { return tbb_.get(); }

  // Calls work(), in which the library plans and builds calls for as many threads as XLA's pool has, where it can be
  // told so; what work throws is thrown again here.
  void ForPool(const std::function<void()>& work) const;

  // As dnnl_memory_create.
  Status CreateMemory(Memory** memory, const MemoryDescriptor* descriptor, Engine* engine, void* address) const {
    return native_engine_ != nullptr ? native_engine_->CreateMemory(memory, descriptor, address)
                                     : functions_.memory_create(memory, descriptor, engine, address);
  }

  // Throws Failure(kUnavailable) in a process that was forked after the engine was created: plans can be made there,
  // but nothing can be executed (abandoned_threads.h).
  void CheckThreads() const;

  // Throws, naming `what`, unless the status is success.
  void Check(Status status, const std::string& what) const;

 private:
  Library() = default;
  void* Address(const std::string& name) const;
  void ChooseEngine(const Version& version);

  void* handle_ = nullptr;
  Functions functions_;
  std::string path_;
  std::string version_;
  std::string runtime_;
  std::string native_engine_problem_;
  std::unique_ptr<const NativeEngine> native_engine_;
  std::unique_ptr<const TbbThreads> tbb_;
  bool bind_threads_ = false;
  mutable std::mutex engine_mutex_;
  mutable std::atomic<Engine*> engine_{nullptr};
};

// Owners of oneDNN objects: unique_ptr with the library's own destroy function.
template <auto Member>
struct Destroy {
  template <typename Object>
  void operator()(Object* object) const {
    (Library::Get().functions().*Member)(object);
  }
};

using OwnedMemoryDescriptor = std::unique_ptr<MemoryDescriptor, Destroy<&Functions::memory_desc_destroy>>;
using OwnedMemory = std::unique_ptr<Memory, Destroy<&Functions::memory_destroy>>;
using OwnedPostOps = std::unique_ptr<PostOps, Destroy<&Functions::post_ops_destroy>>;
using OwnedAttributes = std::unique_ptr<PrimitiveAttributes, Destroy<&Functions::primitive_attr_destroy>>;
using OwnedDescriptor = std::unique_ptr<PrimitiveDescriptor, Destroy<&Functions::primitive_desc_destroy>>;
using OwnedPrimitive = std::unique_ptr<PrimitiveHandle, Destroy<&Functions::primitive_destroy>>;

// The implementation that oneDNN chooses: by one of its functions …_primitive_desc_create, on arguments behind the
// descriptor. Throws, naming `what`, where there is none.
template <typename Create, typename... Arguments>
OwnedDescriptor Choose(const std::string& what, Create* create, Arguments... arguments) {
  PrimitiveDescriptor* descriptor = nullptr;
  Library::Get().Check(create(&descriptor, arguments...), what);
  return OwnedDescriptor(descriptor);
}

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_LIBRARY_H_
