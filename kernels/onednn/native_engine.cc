#include "onednn/native_engine.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "common/failure.h"
#include "common/symbol_table.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr int kTestedMajor = 3, kTestedMinor = 13;
constexpr unsigned kUseRuntimeBuffer = 2;  // memory_flags_t::use_runtime_ptr of src/common/memory.hpp
constexpr int kAlignment = 64;
constexpr size_t kObjectCapacity = 64 << 10;  // far more than a memory object takes

constexpr char kServiceEngine[] = "_ZN4dnnl4impl3cpu18get_service_engineEv";
constexpr char kConstructor[] = "_ZN11dnnl_memoryC2EP11dnnl_enginePK16dnnl_memory_descjPv";
constexpr char kAllocate[] = "_ZN4dnnl4impl6mallocEmi";

template <typename Signature>
Signature* Exported(void* handle, const char* name) {
  auto* function = reinterpret_cast<Signature*>(dlsym(handle, name));
  if (function == nullptr) Unavailable(std::string("it has no ") + name);
  return function;
}

const void* FileOf(const void* function) {
  Dl_info info;
  return dladdr(function, &info) == 0 ? nullptr : info.dli_fbase;
}

// An interposed library expects to see every call, so the native engine must not bypass it.
void CheckSameSharedObject(const Functions& functions) {
  const void* file = FileOf(reinterpret_cast<void*>(functions.version));
#define HLO_DISPATCH_FUNCTION_CHECK(result, name, parameters)              \
  if (FileOf(reinterpret_cast<void*>(functions.name)) != file) {           \
    Unavailable("dnnl_" #name " comes from another file than its others"); \
  }
  HLO_DISPATCH_ONEDNN_FUNCTIONS(HLO_DISPATCH_FUNCTION_CHECK)
#undef HLO_DISPATCH_FUNCTION_CHECK
}

}  // namespace

bool NativeEngine::IsTested(const Version& version) {
  return version.major == kTestedMajor && version.minor == kTestedMinor;
}

NativeEngine::NativeEngine(const Functions& functions, void* handle) {
  CheckSameSharedObject(functions);
  const SymbolTable table(reinterpret_cast<void*>(functions.version));
  construct_ = reinterpret_cast<Construct*>(table.Function(kConstructor));
  allocate_ = reinterpret_cast<Allocate*>(table.Function(kAllocate));
  engine_ = reinterpret_cast<Engine* (*)()>(table.Function(kServiceEngine))();
  if (engine_ == nullptr) Unavailable("it makes no engine of its own");
  EngineKind kind{};
  if (Exported<Status(Engine*, EngineKind*)>(handle, "dnnl_engine_get_kind")(engine_, &kind) != kSuccess ||
      kind != kCpu) {
    Unavailable("its own engine is not one of the CPU");
  }
  MeasureMemoryObjects(functions, handle);
}

// The object's size is not exported: bytes that the constructor leaves unchanged with two different fill patterns are
// outside of it.
void NativeEngine::MeasureMemoryObjects(const Functions& functions, void* handle) {
  const auto engine_of = Exported<Status(const Memory*, Engine**)>(handle, "dnnl_memory_get_engine");
  const auto buffer_of = Exported<Status(const Memory*, void**)>(handle, "dnnl_memory_get_data_handle");
  const auto descriptor_of =
      Exported<Status(const Memory*, const MemoryDescriptor**)>(handle, "dnnl_memory_get_memory_desc");
  const int64_t extents[] = {3, 5}, strides[] = {5, 1};
  MemoryDescriptor* descriptor = nullptr;
  if (functions.memory_desc_create_with_strides(&descriptor, 2, extents, kF32, strides) != kSuccess) {
    Unavailable("it describes no matrix");
  }
  float buffer[15];
  bool is_right = true;
  for (unsigned char filling : {0xa5, 0x5a}) {
    auto* object = static_cast<unsigned char*>(allocate_(kObjectCapacity, kAlignment));
    if (object == nullptr) Unavailable("it allocates nothing");
    std::memset(object, filling, kObjectCapacity);
    construct_(object, engine_, descriptor, kUseRuntimeBuffer, buffer);
    auto* last = std::find_if(std::make_reverse_iterator(object + kObjectCapacity), std::make_reverse_iterator(object),
                              [=](unsigned char byte) { return byte != filling; })
                     .base();
    object_bytes_ = std::max<size_t>(object_bytes_, last - object);
    auto* memory = reinterpret_cast<Memory*>(object);
    Engine* engine = nullptr;
    void* address = nullptr;
    const MemoryDescriptor* described = nullptr;
    is_right = is_right && engine_of(memory, &engine) == kSuccess && engine == engine_ &&
               buffer_of(memory, &address) == kSuccess && address == buffer &&
               descriptor_of(memory, &described) == kSuccess && functions.memory_desc_equal(described, descriptor) != 0;
    if (is_right) functions.memory_destroy(memory);
  }
  functions.memory_desc_destroy(descriptor);
  if (!is_right || object_bytes_ > kObjectCapacity / 2) Unavailable("its memory objects are not what they were");
  // Members at its end that were written to one filling's value by chance, and padding.
  object_bytes_ = (object_bytes_ / kAlignment + 2) * kAlignment;
}

Status NativeEngine::CreateMemory(Memory** memory, const MemoryDescriptor* descriptor, void* address) const {
  void* object = allocate_(object_bytes_, kAlignment);
  if (object == nullptr) return kOutOfMemory;
  construct_(object, engine_, descriptor, kUseRuntimeBuffer, address);
  *memory = static_cast<Memory*>(object);
  return kSuccess;
}

}  // namespace hlo_dispatch::onednn
