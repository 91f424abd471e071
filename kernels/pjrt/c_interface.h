// PJRT's C interface, version 0.114, as far as the plugin reads or makes its structs. XLA's own header is
// xla/pjrt/c/pjrt_c_api.h; jaxlib does not bring it.
#ifndef HLO_DISPATCH_PJRT_C_INTERFACE_H_
#define HLO_DISPATCH_PJRT_C_INTERFACE_H_

#include <cstddef>
#include <cstdint>

namespace hlo_dispatch::pjrt {

// Opaque: the runtime's.
struct Error;
struct Client;
struct Executable;
struct LoadedExecutable;

inline constexpr int kMajorVersion = 0;
inline constexpr int kMinorVersion = 114;

// What every struct of arguments begins with.
struct Arguments {
  size_t struct_size;
  void* extension_start;
};

// More than any struct of any version has.
inline constexpr size_t kMostBytes = 1024;

// A struct for a call of the runtime: zeros stand behind it for what another version adds.
template <typename Struct>
struct Widest : Struct {
  Widest() : Struct{} { this->struct_size = kMostBytes; }
  explicit Widest(const Struct& copied) : Struct(copied) { this->struct_size = kMostBytes; }
  char zeros[kMostBytes - sizeof(Struct)] = {};
};

struct ErrorDestroy : Arguments {
  Error* error;
};

struct ErrorMessage : Arguments {
  const Error* error;
  const char* message;  // out
  size_t message_size;  // out
};

struct ErrorCode : Arguments {
  const Error* error;
  int code;  // out
};

struct NamedValue {
  size_t struct_size;
  void* extension_start;
  const char* name;
  size_t name_size;
  int64_t type;   // an enum of four bytes
  int64_t value;  // or a pointer, or a number of another type
  size_t value_size;
};
inline constexpr int64_t kInteger = 1;

struct CreateClient : Arguments {
  const NamedValue* options;
  size_t option_count;
  void* callbacks[4];
  Client* client;  // out
  void* rest[2];
};

struct Program : Arguments {
  char* code;
  size_t code_size;
  const char* format;
  size_t format_size;
};

struct ClientCompile : Arguments {
  Client* client;
  const Program* program;
  const char* options;  // a serialized CompileOptionsProto
  size_t options_size;
  LoadedExecutable* executable;  // out
};

struct Compile : Arguments {
  const void* topology;
  const Program* program;
  const char* options;
  size_t options_size;
  Client* client;
  Executable* executable;  // out
};

struct OptimizedProgram : Arguments {
  Executable* executable;
  Program* program;  // in: room for the code, or null; out
};

struct GetExecutable : Arguments {
  LoadedExecutable* loaded;
  Executable* executable;  // out
};

struct AddressableDevices : Arguments {
  LoadedExecutable* loaded;
  void* const* devices;  // out
  size_t count;          // out
};

struct ExecutableDestroy : Arguments {
  void* executable;  // loaded or not
};

struct Execute : Arguments {
  LoadedExecutable* executable;
  Arguments* options;
  void* rest[6];
};

struct PlatformVersion : Arguments {
  void* of;             // a client or a topology
  const char* version;  // out
  size_t version_size;  // out
};

struct Serialize : Arguments {
  const Executable* executable;
  const char* bytes;       // out
  size_t bytes_size;       // out
  void* serialized;        // out
  void (*deleter)(void*);  // out
};

struct Deserialize : Arguments {
  Client* client;
  const char* bytes;
  size_t bytes_size;
  void* rest[4];
};

struct Extension {
  size_t struct_size;
  int type;
  const Extension* next;
};

inline constexpr int kFfiExtension = 5;

struct RegisterHandler {  // this one has no extension_start
  size_t struct_size;
  const char* target;
  size_t target_size;
  void* handler;
  const char* platform;
  size_t platform_size;
  int traits;
};

struct FfiExtension {
  Extension base;
  void* register_type;
  void* add_user_data;
  Error* (*register_handler)(RegisterHandler*);
};

using Function = Error* (*)(Arguments*);

struct Version {
  size_t struct_size;
  void* extension_start;
  int major, minor;
};

// Places of functions in the table.
enum Place : size_t {
  kErrorDestroy = 0,
  kErrorMessage = 1,
  kErrorCode = 2,
  kInitialize = 3,
  kClientCreate = 10,
  kPlatformVersion = 14,
  kClientCompile = 20,
  kExecutableDestroy = 40,
  kOptimizedProgram = 48,
  kSerialize = 49,
  kLoadedExecutableDestroy = 50,
  kGetExecutable = 51,
  kAddressableDevices = 52,
  kExecute = 55,
  kDeserialize = 56,
  kTopologyPlatformVersion = 85,
  kCompile = 89,
  kErrorPayloads = 132,
  kFunctions = 138,
};

// What GetPjrtApi returns.
struct Api {
  size_t struct_size;
  const Extension* extensions;
  Version version;
  Function functions[kFunctions];
};

inline constexpr size_t kTableStart = offsetof(Api, functions);

// sizeof each function's struct in this version, without the padding at its end.
inline constexpr uint8_t kSizes[kFunctions] = {
    24, 40, 28, 16, 32, 24, 25,  24,  24, 40,  88, 24, 40,  28, 40, 40, 40, 40, 40, 40, 56, 48, 120, 28, 28, 40, 40, 40,
    40, 32, 25, 28, 40, 32, 201, 28,  40, 40,  40, 40, 24,  40, 32, 32, 32, 32, 40, 48, 32, 56, 24,  32, 40, 24, 25, 80,
    72, 40, 24, 28, 40, 40, 40,  104, 32, 32,  32, 24, 25,  40, 56, 25, 32, 32, 24, 24, 32, 24, 40,  32, 32, 32, 56, 24,
    40, 40, 40, 56, 40, 64, 40,  48,  40, 112, 40, 32, 144, 28, 24, 24, 56, 24, 72, 72, 40, 32, 32,  40, 48, 40, 40, 32,
    80, 40, 40, 80, 64, 56, 112, 80,  64, 72,  48, 24, 56,  48, 24, 48, 56, 56, 40, 64, 40, 32, 48,  24, 88, 40};
inline constexpr size_t kExecuteOptionsSize = 144;

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_C_INTERFACE_H_
