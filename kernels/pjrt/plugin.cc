// GetPjrtApi: the runtime's table, with the functions in between that exchange programs and bridge versions.
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "pjrt/archive.h"
#include "pjrt/c_interface.h"
#include "pjrt/devices.h"
#include "pjrt/errors.h"
#include "pjrt/exchange.h"
#include "pjrt/runtime.h"

namespace hlo_dispatch::pjrt {

namespace {

template <typename Struct>
Struct* As(Arguments* arguments) {
  return reinterpret_cast<Struct*>(arguments);
}

// Whether a struct of this size lacks what the runtime may read. What a runtime newer than us knows, we do not.
bool IsShort(size_t size, size_t known) { return size < known || Runtime::Get().api()->version.minor > kMinorVersion; }

// A caller's struct with zeros behind it, as far as any version reads.
class Widened {
 public:
  explicit Widened(Arguments* arguments) : original_(arguments), size_(std::min(arguments->struct_size, kMostBytes)) {
    std::memcpy(bytes_, original_, size_);
    get()->struct_size = kMostBytes;
  }
  Arguments* get() { return reinterpret_cast<Arguments*>(bytes_); }

  // Gives the caller what was written into the part that they know.
  void CopyBack() {
    get()->struct_size = original_->struct_size;
    std::memcpy(original_, bytes_, size_);
  }

 private:
  Arguments* original_;
  size_t size_;
  alignas(std::max_align_t) char bytes_[kMostBytes] = {};
};

Error* InitializePlugin(Arguments* arguments) {
  if (Error* error = Runtime::Get().Call(kInitialize, arguments)) return error;
  PrepareRuntime();
  return nullptr;
}

Error* ExecuteWithOptions(Arguments* arguments) {
  Arguments* brought = As<Execute>(arguments)->options;
  if (brought == nullptr || !IsShort(brought->struct_size, kExecuteOptionsSize)) {
    return Runtime::Get().Call(kExecute, arguments);
  }
  Widest<Execute> given(*As<Execute>(arguments));
  Widened options(brought);
  given.options = options.get();
  return Runtime::Get().Call(kExecute, &given);
}

// What a function does here instead of calling the runtime's; null: nothing else.
Function OursAt(size_t place) {
  switch (place) {
    case kInitialize:
      return InitializePlugin;
    case kClientCreate:
      return [](Arguments* arguments) { return CreateClientWithDevices(As<CreateClient>(arguments)); };
    case kClientCompile:
      return [](Arguments* arguments) { return CompileForClient(As<ClientCompile>(arguments)); };
    case kCompile:
      return [](Arguments* arguments) { return CompileForTopology(As<Compile>(arguments)); };
    case kExecute:
      return ExecuteWithOptions;
    case kSerialize:
      return [](Arguments* arguments) { return SerializeExecutable(As<Serialize>(arguments)); };
    case kDeserialize:
      return [](Arguments* arguments) { return DeserializeExecutable(As<Deserialize>(arguments)); };
    case kPlatformVersion:
      return [](Arguments* arguments) { return PlatformVersionOf(kPlatformVersion, As<PlatformVersion>(arguments)); };
    case kTopologyPlatformVersion:
      return [](Arguments* arguments) {
        return PlatformVersionOf(kTopologyPlatformVersion, As<PlatformVersion>(arguments));
      };
    default:
      return nullptr;
  }
}

// What each function of our table calls, once that was made.
Function callees[kFunctions];

// A function about an error of ours. Whether it was one.
bool AboutOurs(size_t place, Arguments* arguments) {
  if (place != kErrorDestroy && place != kErrorMessage && place != kErrorCode && place != kErrorPayloads) return false;
  if (!IsOurs(As<ErrorDestroy>(arguments)->error)) return false;
  if (place == kErrorDestroy) DestroyOurs(As<ErrorDestroy>(arguments));
  if (place == kErrorMessage) MessageOfOurs(As<ErrorMessage>(arguments));
  if (place == kErrorCode) CodeOfOurs(As<ErrorCode>(arguments));
  return true;
}

template <size_t kPlace>
Error* Forward(Arguments* arguments) {
  if (AboutOurs(kPlace, arguments)) return nullptr;
  const Runtime& runtime = Runtime::Get();
  if (!runtime.problem().empty()) {
    // These return nothing.
    if (kPlace == kErrorDestroy || kPlace == kErrorMessage) return nullptr;
    return NewError(kFailedPrecondition, runtime.problem());
  }
  // Nothing is thrown into the host.
  try {
    if (!IsShort(arguments->struct_size, kSizes[kPlace])) return callees[kPlace](arguments);
    Widened widened(arguments);
    Error* error = callees[kPlace](widened.get());
    widened.CopyBack();
    return error;
  } catch (const std::exception& problem) {
    return NewError(kResourceExhausted, std::string("hlo-dispatch's PJRT plugin: ") + problem.what());
  }
}

template <size_t... kPlaces>
constexpr std::array<Function, sizeof...(kPlaces)> Forwards(std::index_sequence<kPlaces...>) {
  return {Forward<kPlaces>...};
}

Api MadeTable() {
  constexpr auto kForwards = Forwards(std::make_index_sequence<kFunctions>());
  const Runtime& runtime = Runtime::Get();
  Api table{};
  table.struct_size = sizeof(table);
  table.version = {sizeof(Version), nullptr, kMajorVersion, kMinorVersion};
  const bool is_there = runtime.problem().empty();
  if (is_there) {
    // The lesser of the two versions.
    table.struct_size = std::min(table.struct_size, runtime.api()->struct_size);
    table.version.minor = std::min(kMinorVersion, runtime.api()->version.minor);
    table.extensions = runtime.api()->extensions;
  }
  for (size_t place = 0; place < kFunctions; ++place) {
    if (is_there && !runtime.Has(place)) continue;
    const Function ours = OursAt(place);
    callees[place] = ours != nullptr || !is_there ? ours : runtime.api()->functions[place];
    table.functions[place] = kForwards[place];
  }
  return table;
}

}  // namespace

}  // namespace hlo_dispatch::pjrt

extern "C" __attribute__((visibility("default"))) const hlo_dispatch::pjrt::Api* GetPjrtApi() {
  static const auto* table = new hlo_dispatch::pjrt::Api(hlo_dispatch::pjrt::MadeTable());
  return table;
}
