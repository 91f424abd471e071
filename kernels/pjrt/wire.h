// Protocol buffers' wire format, as far as compile options and optimized programs need it.
#ifndef HLO_DISPATCH_PJRT_WIRE_H_
#define HLO_DISPATCH_PJRT_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hlo_dispatch::pjrt {

// The last value of a field of bytes; none where it is absent. These throw where a message is damaged.
std::optional<std::string_view> BytesField(std::string_view message, uint64_t number);
// The last value of a field of integers, or `otherwise`.
uint64_t IntegerField(std::string_view message, uint64_t number, uint64_t otherwise);

// A CompileOptionsProto that leaves XLA's optimization out: the program is compiled as it is.
std::string WithBackendOnly(std::string_view options);
// The devices that a program of a CompileOptionsProto runs on: its replicas times its partitions.
uint64_t DevicesOf(std::string_view options);
// A CompileOptionsProto without the numbers of these devices, for another client.
std::string WithoutDevices(std::string_view options);
// The module of an optimized program (HloModuleProtoWithConfig).
std::optional<std::string_view> ModuleOf(std::string_view with_config);
// Whether a serialized HloModuleProto has an instruction of an opcode that the tables match. A scan of its bytes: it
// may say yes where a string looks like one.
bool HasSomethingToMatch(std::string_view module);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_WIRE_H_
