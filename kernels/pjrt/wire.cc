#include "pjrt/wire.h"

namespace hlo_dispatch::pjrt {

namespace {

// One field after the other.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  // Whether there was another one.
  bool Next() {
    uint64_t tag = 0;
    if (rest_.empty() || !Varint(&tag)) return false;
    number = tag >> 3;
    bytes = {};
    integer = 0;
    switch (tag & 7) {
      case 0:
        return Varint(&integer);
      case 1:
        return Skip(8);
      case 2:
        return Varint(&integer) && Skip(integer);
      case 5:
        return Skip(4);
      default:
        return false;
    }
  }

  uint64_t number = 0, integer = 0;
  std::string_view bytes;

 private:
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  bool Skip(uint64_t count) {
    if (count > rest_.size()) return false;
    bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  }

  std::string_view rest_;
};

// Numbers of fields in XLA's protos.
constexpr uint64_t kModule = 1, kBuildOptions = 3, kReplicas = 4, kPartitions = 5;

}  // namespace

std::optional<std::string_view> BytesField(std::string_view message, uint64_t number) {
  std::optional<std::string_view> found;
  for (Reader reader(message); reader.Next();) {
    if (reader.number == number) found = reader.bytes;
  }
  return found;
}

uint64_t IntegerField(std::string_view message, uint64_t number, uint64_t otherwise) {
  for (Reader reader(message); reader.Next();) {
    if (reader.number == number) otherwise = reader.integer;
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
