// Protobuf's wire format, as far as it takes to find the fields of a message.
#ifndef HLO_DISPATCH_COMMON_WIRE_H_
#define HLO_DISPATCH_COMMON_WIRE_H_

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace hlo_dispatch {

struct WireField {
  uint64_t number = 0;
  bool is_integer = false;  // by its wire type, which need not be its schema's: protobuf takes it for unknown then
  std::string_view whole;   // its tag included
  std::string_view bytes;   // of a string, a message, or packed numbers
  uint64_t integer = 0;     // of a number that is not packed
};

class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  bool Next(WireField* field) {
    if (rest_.empty()) return false;
    const char* begin = rest_.data();
    const uint64_t tag = Integer();
    field->number = tag >> 3;
    field->bytes = {};
    field->integer = 0;
    field->is_integer = (tag & 7) == 0;
    switch (tag & 7) {
      case 0:
        field->integer = Integer();
        break;
      case 1:
        Take(8);
        break;
      case 2:
        field->bytes = Take(Integer());
        break;
      case 5:
        Take(4);
        break;
      default:
        throw std::runtime_error("this is not a serialized message");
    }
    field->whole = std::string_view(begin, static_cast<size_t>(rest_.data() - begin));
    return true;
  }

  // The next packed number.
  bool Next(int64_t* integer) {
    if (rest_.empty()) return false;
    *integer = static_cast<int64_t>(Integer());
    return true;
  }

 private:
  uint64_t Integer() {
    uint64_t integer = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      integer |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return integer;
    }
    throw std::runtime_error("this is not a serialized message");
  }

  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) throw std::runtime_error("a serialized message ends early");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_WIRE_H_
