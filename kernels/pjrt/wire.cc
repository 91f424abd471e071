#include "pjrt/wire.h"

#include <algorithm>

#include "common/wire.h"

namespace hlo_dispatch::pjrt {

namespace {

// Numbers of fields in XLA's protos.
constexpr uint64_t kModule = 1, kBuildOptions = 3, kDeviceOrdinal = 1, kReplicas = 4, kPartitions = 5,
                   kDeviceAssignment = 9;

// Appends a field of bytes to a message.
void Append(std::string* message, uint64_t number, std::string_view bytes) {
  message->push_back(static_cast<char>(number << 3 | 2));
  uint64_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) message->push_back(static_cast<char>(size | 0x80));
  message->push_back(static_cast<char>(size));
  message->append(bytes);
}

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

uint64_t DevicesOf(std::string_view options) {
  const std::string_view build = BytesField(options, kBuildOptions).value_or("");
  return std::max<uint64_t>(IntegerField(build, kReplicas, 1), 1) *
         std::max<uint64_t>(IntegerField(build, kPartitions, 1), 1);
}

std::string WithoutDevices(std::string_view options) {
  std::string made;
  WireReader reader(options);
  for (WireField field; reader.Next(&field);) {
    if (field.number != kBuildOptions) {
      made += field.whole;
      continue;
    }
    std::string build;
    WireReader inner(field.bytes);
    for (WireField part; inner.Next(&part);) {
      if (part.number != kDeviceOrdinal && part.number != kDeviceAssignment) build += part.whole;
    }
    Append(&made, kBuildOptions, build);
  }
  return made;
}

std::optional<std::string_view> ModuleOf(std::string_view with_config) { return BytesField(with_config, kModule); }

bool HasSomethingToMatch(std::string_view module) {
  // Field 2 of an instruction is its opcode.
  for (const std::string_view opcode :
       {"convolution", "dot",          "custom-call", "reduce", "reduce-window", "fft",         "scatter",
        "sort",        "atan2",        "cbrt",        "cosine", "erf",           "exponential", "exponential-minus-one",
        "log",         "log-plus-one", "power",       "sine",   "tan",           "while"}) {
    std::string field = "\x12";
    field.push_back(static_cast<char>(opcode.size()));
    field += opcode;
    if (module.find(field) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace hlo_dispatch::pjrt
