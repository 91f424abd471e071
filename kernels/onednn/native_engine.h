// Native (non-SYCL) engine: the CPU engine inside oneDNN's SYCL build that computes without SYCL.
//
// The wheel's oneDNN offers an engine that hands each call to a thread of SYCL's, through Intel's OpenCL runtime. The
// same file holds the engine of every other build too: it computes with TBB in its caller's thread, as soon as it is
// called. oneDNN uses it internally and does not export it; all public functions work on it but the one that makes a
// memory object, for which a constructor is called. With it a call costs less, oneDNN starts in milliseconds, and
// Intel's OpenCL runtime is not loaded, nor are its threads and signal handlers.
#ifndef HLO_DISPATCH_ONEDNN_NATIVE_ENGINE_H_
#define HLO_DISPATCH_ONEDNN_NATIVE_ENGINE_H_

#include <cstddef>

#include "onednn/api.h"

namespace hlo_dispatch::onednn {

class NativeEngine {
 public:
  // Whether this release was tested so. Others may have other classes under the same names.
  static bool IsTested(const Version& version);

  // Throws Failure(kUnavailable) with the reason: a stripped file, interposed functions, an unexpected engine or memory
  // object. `handle` is dlopen's.
  NativeEngine(const Functions& functions, void* handle);

  Engine* engine() const { return engine_; }
  // As dnnl_memory_create, with a buffer that the caller owns (or nullptr, for now).
  Status CreateMemory(Memory** memory, const MemoryDescriptor* descriptor, void* address) const;

 private:
  using Construct = void(void* object, Engine*, const MemoryDescriptor*, unsigned flags, void* address);
  using Allocate = void*(size_t bytes, int alignment);

  void MeasureMemoryObjects(const Functions& functions, void* handle);

  Engine* engine_ = nullptr;
  Construct* construct_ = nullptr;
  Allocate* allocate_ = nullptr;
  size_t object_bytes_ = 0;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_NATIVE_ENGINE_H_
