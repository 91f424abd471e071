#include "pjrt/archive.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "hlo_dispatch/kernels.h"
#include "pjrt/errors.h"
#include "pjrt/exchange.h"
#include "pjrt/runtime.h"

namespace hlo_dispatch::pjrt {

namespace {

constexpr std::string_view kMagic = "hlo_dispatch.pjrt.executable 1\n";

// What has to agree, with its name for messages. The vendors' versions are in each call of the executable, and are
// checked where that is loaded.
std::vector<std::pair<std::string, std::string>> Identities() {
  return {{"runtime", Runtime::Get().Identity()},
          {"hlo-dispatch", std::string(hlo_dispatch_version()) + " " + hlo_dispatch_own_version()},
          {"calls", std::to_string(hlo_dispatch_abi())}};
}

std::string Header() {
  std::string header(kMagic);
  for (const auto& [name, value] : Identities()) header += name + "=" + value + "\n";
  return header + "\n";
}

// The bytes behind a header; throws a sentence where it is another one's.
std::string_view Unwrapped(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic)
    throw std::string("hlo-dispatch's PJRT plugin has not written this executable");
  bytes.remove_prefix(kMagic.size());
  for (const auto& [name, value] : Identities()) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    const std::string wanted = name + "=" + value;
    if (line != wanted)
      throw "this executable was compiled with " + std::string(line) + "; here it is " + wanted + ": compile it anew";
    if (line.size() == bytes.size()) throw std::string("this executable ends too early");
    bytes.remove_prefix(line.size() + 1);
  }
  if (bytes.empty()) throw std::string("this executable ends too early");
  return bytes.substr(1);
}

}  // namespace

Error* PlatformVersionOf(Place place, PlatformVersion* arguments) {
  if (Error* error = Runtime::Get().Call(place, arguments)) return error;
  std::string version(arguments->version, arguments->version_size);
  version += "; hlo-dispatch " + std::string(hlo_dispatch_version()) + " (" + hlo_dispatch_own_version() +
             ", runtime " + Runtime::Get().Identity() + (IsOff() ? ", off" : "");
  for (const char* setting : {"POLICY", "TABLES"}) {
    const char* value = secure_getenv((std::string("HLO_DISPATCH_") + setting).c_str());
    if (value != nullptr) version += std::string(", ") + setting + "=" + value;
  }
  version += ")";
  static std::mutex mutex;
  static auto* versions = new std::set<std::string>();  // they have to live as long as what they belong to
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string& kept = *versions->insert(std::move(version)).first;
  arguments->version = kept.c_str();
  arguments->version_size = kept.size();
  return nullptr;
}

Error* SerializeExecutable(Serialize* arguments) {
  if (Error* error = Runtime::Get().Call(kSerialize, arguments)) return error;
  std::unique_ptr<std::string> made;
  try {
    made = std::make_unique<std::string>(Header().append(arguments->bytes, arguments->bytes_size));
  } catch (...) {
    arguments->deleter(arguments->serialized);
    throw;
  }
  arguments->deleter(arguments->serialized);
  std::string* kept = made.release();  // for as long as the host wants it
  arguments->bytes = kept->data();
  arguments->bytes_size = kept->size();
  arguments->serialized = kept;
  arguments->deleter = [](void* serialized) { delete static_cast<std::string*>(serialized); };
  return nullptr;
}

Error* DeserializeExecutable(Deserialize* arguments) {
  PrepareRuntime();
  try {
    const std::string_view bytes = Unwrapped({arguments->bytes, arguments->bytes_size});
    const auto before = std::make_pair(arguments->bytes, arguments->bytes_size);
    arguments->bytes = bytes.data();
    arguments->bytes_size = bytes.size();
    Error* error = Runtime::Get().Call(kDeserialize, arguments);
    std::tie(arguments->bytes, arguments->bytes_size) = before;
    return error;
  } catch (const std::string& sentence) {
    return NewError(kFailedPrecondition, sentence);
  }
}

}  // namespace hlo_dispatch::pjrt
