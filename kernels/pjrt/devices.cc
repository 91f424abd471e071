#include "pjrt/devices.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "pjrt/runtime.h"

namespace hlo_dispatch::pjrt {

namespace {

constexpr std::string_view kOption = "cpu_device_count", kFlag = "--xla_force_host_platform_device_count=";

int64_t DevicesOfFlags() {
  const char* flags = std::getenv("XLA_FLAGS");
  const std::string_view text = flags == nullptr ? "" : flags;
  const size_t place = text.rfind(kFlag);
  if (place == std::string_view::npos) return 1;
  return std::max<int64_t>(std::strtol(text.data() + place + kFlag.size(), nullptr, 10), 1);
}

}  // namespace

Error* CreateClientWithDevices(CreateClient* arguments) {
  std::vector<NamedValue> options(arguments->options, arguments->options + arguments->option_count);
  const auto is_count = [](const NamedValue& value) {
    return std::string_view(value.name, value.name_size) == kOption;
  };
  const Runtime& runtime = Runtime::Get();
  if (std::any_of(options.begin(), options.end(), is_count)) return runtime.Call(kClientCreate, arguments);
  options.push_back({sizeof(NamedValue), nullptr, kOption.data(), kOption.size(), kInteger, DevicesOfFlags(), 1});
  Widest<CreateClient> given(*arguments);
  given.options = options.data();
  given.option_count = options.size();
  if (Error* error = runtime.Call(kClientCreate, &given)) {
    // A runtime that does not know the option.
    runtime.Taken(error);
    return runtime.Call(kClientCreate, arguments);
  }
  arguments->client = given.client;
  return nullptr;
}

}  // namespace hlo_dispatch::pjrt
