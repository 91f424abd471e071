#include "pjrt/wire.h"

#include "common/wire.h"

namespace hlo_dispatch::pjrt {

namespace {

// Numbers of fields in XLA's protos.
constexpr uint64_t kModule = 1, kBuildOptions = 3, kReplicas = 4, kPartitions = 5;

}  // namespace

std::optional<std::string_view> BytesField(std::string_view message, uint64_t number) {
  std::optional<std::string_view> found;
  WireReader reader(message);
  for (WireField field; reader.Next(&field);) {
    if (field.number == number) found = field.bytes;
  }
  return found;
}

uint64_t IntegerField(std::string_view message, uint64_t number, uint64_t otherwise) {
  WireReader reader(message);
  for (WireField field; reader.Next(&field);) {
    if (field.number == number) otherwise = field.integer;
  }
  return otherwise;
}

std::string WithBackendOnly(std::string_view options) {
  // A message that is there twice is merged: executable_build_options { run_backend_only: true }.
  return std::string(options) + "\x1a\x02\x58\x01";
}

bool IsForOneDevice(std::string_view options) {
  const std::string_view build = BytesField(options, kBuildOptions).value_or("");
  return IntegerField(build, kReplicas, 1) <= 1 && IntegerField(build, kPartitions, 1) <= 1;
}

std::optional<std::string_view> ModuleOf(std::string_view with_config) { return BytesField(with_config, kModule); }

bool HasSomethingToMatch(std::string_view module) {
  // Field 2 of an instruction is its opcode.
  for (const std::string_view opcode :
       {"convolution", "dot", "custom-call", "reduce", "reduce-window", "fft", "sort"}) {
    std::string field = "\x12";
    field.push_back(static_cast<char>(opcode.size()));
    field += opcode;
    if (module.find(field) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace hlo_dispatch::pjrt
