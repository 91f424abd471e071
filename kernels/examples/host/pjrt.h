// As much of PJRT's C interface as the example needs, in C++ of our own: which function stands where in a plugin's
// table, and what each is given. XLA's own header (xla/pjrt/c/pjrt_c_api.h) has all of it; jaxlib brings only the
// FFI's.
#ifndef HLO_DISPATCH_EXAMPLES_HOST_PJRT_H_
#define HLO_DISPATCH_EXAMPLES_HOST_PJRT_H_

#include <cstddef>
#include <cstdint>

namespace pjrt {

struct Error;
struct Client;
struct Device;
struct Executable;
struct Buffer;
struct Event;

// What every argument begins with. Plugins want structs that are at least as large as those they know.
template <typename Given>
struct Struct {
  size_t struct_size = sizeof(Given);
  void* extension_start = nullptr;
};

struct ErrorMessage : Struct<ErrorMessage> {
  Error* error = nullptr;
  const char* message = nullptr;  // out, as all that comes last
  size_t size = 0;
};

struct Initialize : Struct<Initialize> {};

inline constexpr int kInteger = 1;

struct AwaitEvent : Struct<AwaitEvent> {
  Event* event = nullptr;
};

struct DestroyEvent : Struct<DestroyEvent> {
  Event* event = nullptr;
};

struct NamedValue : Struct<NamedValue> {
  const char* name = nullptr;
  size_t name_size = 0;
  int type = kInteger;
  int64_t value = 0;
  size_t value_size = 1;
};

struct CreateClient : Struct<CreateClient> {
  const NamedValue* options = nullptr;
  size_t option_count = 0;
  void* key_value_get = nullptr;
  void* get_argument = nullptr;
  void* key_value_put = nullptr;
  void* put_argument = nullptr;
  Client* client = nullptr;
  void* key_value_try_get = nullptr;
  void* try_get_argument = nullptr;
};

struct Devices : Struct<Devices> {
  Client* client = nullptr;
  Device* const* devices = nullptr;
  size_t count = 0;
};

struct Program : Struct<Program> {
  const char* code = nullptr;  // written to where the plugin gives a program
  size_t code_size = 0;
  const char* format = nullptr;
  size_t format_size = 0;
};

struct Compile : Struct<Compile> {
  Client* client = nullptr;
  const Program* program = nullptr;
  const char* options = nullptr;  // a serialized CompileOptionsProto
  size_t options_size = 0;
  Executable* executable = nullptr;
};

struct GetExecutable : Struct<GetExecutable> {
  Executable* loaded = nullptr;
  Executable* executable = nullptr;
};

struct OptimizedProgram : Struct<OptimizedProgram> {
  Executable* executable = nullptr;
  Program* program = nullptr;  // in: room for the code, or null
};

inline constexpr int kF32 = 11;
inline constexpr int kCopiedDuringTheCall = 0;

struct ToDevice : Struct<ToDevice> {
  Client* client = nullptr;
  const void* data = nullptr;
  int type = kF32;
  const int64_t* dimensions = nullptr;
  size_t rank = 0;
  const int64_t* strides = nullptr;
  size_t stride_count = 0;
  int semantics = kCopiedDuringTheCall;
  Device* device = nullptr;
  void* memory = nullptr;
  void* layout = nullptr;
  Event* done = nullptr;
  Buffer* buffer = nullptr;
};

struct Options : Struct<Options> {
  void* none[24] = {};  // callbacks and indices, of which there are none
};

struct Execute : Struct<Execute> {
  Executable* executable = nullptr;
  Options* options = nullptr;
  Buffer* const* const* arguments = nullptr;
  size_t device_count = 1;
  size_t argument_count = 0;
  Buffer** const* results = nullptr;
  Event** done = nullptr;
  Device* device = nullptr;
};

struct ToHost : Struct<ToHost> {
  Buffer* buffer = nullptr;
  void* layout = nullptr;
  void* data = nullptr;  // null: only the size is asked
  size_t size = 0;
  Event* done = nullptr;
};

struct DestroyBuffer : Struct<DestroyBuffer> {
  Buffer* buffer = nullptr;
};

struct Extension {
  size_t struct_size;
  int type;
  const Extension* next;
};

inline constexpr int kFfi = 5;

struct RegisterHandler {  // this one has no extension_start
  size_t struct_size = sizeof(RegisterHandler);
  const char* target = nullptr;
  size_t target_size = 0;
  void* handler = nullptr;
  const char* platform = nullptr;
  size_t platform_size = 0;
  int traits = 0;
};

struct FfiExtension {
  Extension base;
  void* register_type;
  void* add_user_data;
  Error* (*register_handler)(RegisterHandler*);
};

struct Version {
  size_t struct_size;
  void* extension_start;
  int major, minor;
};

// GetPjrtApi's answer.
struct Api {
  size_t struct_size;
  const Extension* extensions;
  Version version;
  void* functions[71];  // as far as we go

  // Calls a function of the table.
  template <typename Given>
  Error* Call(size_t place, Given* given) const {
    return reinterpret_cast<Error* (*)(Given*)>(functions[place])(given);
  }
};

// Where functions stand; it has been so since version 0.30.
inline constexpr size_t kErrorMessage = 1, kInitialize = 3, kDestroyEvent = 5, kAwaitEvent = 8, kCreateClient = 10,
                        kDevices = 16, kCompile = 20, kToDevice = 22, kOptimizedProgram = 48, kGetExecutable = 51,
                        kExecute = 55, kDestroyBuffer = 58, kToHost = 70;

}  // namespace pjrt

#endif  // HLO_DISPATCH_EXAMPLES_HOST_PJRT_H_
