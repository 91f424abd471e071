// A host without Python: compiles and runs a module that hlo-dispatch rewrote, on a PJRT plugin for the CPU.
//
//   host PLUGIN --optimize PROGRAM OPTIMIZED
//   host PLUGIN [--runs COUNT] MODULE RESULT [DIMENSIONS:FILE]...
//
// The first takes a program in StableHLO, and writes the module that the plugin's XLA optimized it to: a module belongs
// to the compiler that made it. MODULE is what `hlo-dispatch rewrite OPTIMIZED -o MODULE` wrote; each operand is f32
// and row-major, such as 1x28x28x64:x.bin, and so is the result. With --runs it runs once and then so often for each
// line of standard input, and prints the milliseconds of each, until its result is ready: of the clock, and of all
// threads together.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "hlo_dispatch/kernels.h"
#include "pjrt.h"
#include "xla/ffi/api/c_api.h"

namespace {

[[noreturn]] void Fail(const std::string& message) { throw std::runtime_error(message); }

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

void Check(hlo_dispatch_error* error) {
  if (error == nullptr) return;
  const std::string message = hlo_dispatch_error_message(error);
  hlo_dispatch_error_free(error);
  Fail(message);
}

// XLA's table of FFI functions. A plugin does not export it, but every handler is given it, as soon as it is
// registered: it is asked then what it was built for.
const XLA_FFI_Api* table = nullptr;

XLA_FFI_Error* Knock(XLA_FFI_CallFrame* frame) {
  if (frame->api != nullptr) table = frame->api;
  for (auto* extension = frame->extension_start; extension != nullptr; extension = extension->next) {
    if (extension->type != XLA_FFI_Extension_Metadata) continue;
    auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = 3;
  }
  return nullptr;
}

// The first field of a protocol buffer, which is a message.
std::string FirstField(const std::string& message) {
  size_t at = 1, size = 0;
  for (int shift = 0; at < message.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(message[at++]);
    size |= static_cast<size_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) break;
  }
  if (message.empty() || message[0] != '\x0a' || size > message.size() - at) Fail("the module is damaged");
  return message.substr(at, size);
}

class Plugin {
 public:
  explicit Plugin(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) Fail(dlerror());
    const auto get = reinterpret_cast<const pjrt::Api* (*)()>(dlsym(handle, "GetPjrtApi"));
    if (get == nullptr) Fail(path + " is no PJRT plugin: it has no GetPjrtApi");
    api_ = get();
    pjrt::Initialize initialize;
    Check(api_->Call(pjrt::kInitialize, &initialize));
  }

  // Makes our kernels known to the XLA in the plugin.
  void AddKernels() const {
    const pjrt::Extension* extension = api_->extensions;
    while (extension != nullptr && extension->type != pjrt::kFfi) extension = extension->next;
    if (extension == nullptr) Fail("the plugin has no FFI extension");
    const std::string target = "hlo_dispatch.example.knock", platform = "Host";
    pjrt::RegisterHandler given;
    given.target = target.c_str();
    given.target_size = target.size();
    given.handler = reinterpret_cast<void*>(&Knock);
    given.platform = platform.c_str();
    given.platform_size = platform.size();
    Check(reinterpret_cast<const pjrt::FfiExtension*>(extension)->register_handler(&given));
    ::Check(hlo_dispatch_register(table, platform.c_str()));
  }

  void Start() {
    // Of themselves runtimes have four devices, and threads for four, however few processors there are.
    const std::string name = "cpu_device_count";
    pjrt::NamedValue count;
    count.name = name.c_str();
    count.name_size = name.size();
    count.value = 1;
    pjrt::CreateClient create;
    create.options = &count;
    create.option_count = 1;
    Check(api_->Call(pjrt::kCreateClient, &create));
    client_ = create.client;
    pjrt::Devices devices;
    devices.client = client_;
    Check(api_->Call(pjrt::kDevices, &devices));
    device_ = devices.devices[0];
  }

  // Compiles a program (format "mlir": StableHLO), or a module that is optimized already ("hlo").
  pjrt::Executable* Compile(const std::string& code, const std::string& format) const {
    // executable_build_options: device_ordinal -1, one replica, one partition.
    std::string options = "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01";
    // run_backend_only: XLA's optimization would run a second time, which modules are not made for.
    if (format == "hlo") options += "\x1a\x02\x58\x01";
    pjrt::Program program;
    program.code = code.data();
    program.code_size = code.size();
    program.format = format.data();
    program.format_size = format.size();
    pjrt::Compile given;
    given.client = client_;
    given.program = &program;
    given.options = options.data();
    given.options_size = options.size();
    Check(api_->Call(pjrt::kCompile, &given));
    return given.executable;
  }

  // The module that an executable was made of.
  std::string OptimizedModule(pjrt::Executable* loaded) const {
    pjrt::GetExecutable get;
    get.loaded = loaded;
    Check(api_->Call(pjrt::kGetExecutable, &get));
    pjrt::Program program;
    pjrt::OptimizedProgram given;
    given.executable = get.executable;
    given.program = &program;
    Check(api_->Call(pjrt::kOptimizedProgram, &given));
    std::string code(program.code_size, '\0');
    program.code = code.data();
    Check(api_->Call(pjrt::kOptimizedProgram, &given));
    if (std::string(program.format, program.format_size) != "hlo_with_config")
      Fail("the program is in no known format");
    return FirstField(code);
  }

  pjrt::Buffer* Upload(const std::string& data, const std::vector<int64_t>& dimensions) const {
    pjrt::ToDevice given;
    given.client = client_;
    given.data = data.data();
    given.dimensions = dimensions.data();
    given.rank = dimensions.size();
    given.device = device_;
    Check(api_->Call(pjrt::kToDevice, &given));
    Await(given.done);
    return given.buffer;
  }

  // Of an executable with one result.
  pjrt::Buffer* Run(pjrt::Executable* executable, const std::vector<pjrt::Buffer*>& operands) const {
    pjrt::Options options;
    pjrt::Buffer* result = nullptr;
    pjrt::Buffer** results = &result;
    pjrt::Buffer* const* arguments = operands.data();
    pjrt::Event* done = nullptr;
    pjrt::Execute given;
    given.executable = executable;
    given.options = &options;
    given.arguments = &arguments;
    given.argument_count = operands.size();
    given.results = &results;
    given.done = &done;
    Check(api_->Call(pjrt::kExecute, &given));
    Await(done);
    return result;
  }

  void Destroy(pjrt::Buffer* buffer) const {
    pjrt::DestroyBuffer given;
    given.buffer = buffer;
    Check(api_->Call(pjrt::kDestroyBuffer, &given));
  }

  std::string Download(pjrt::Buffer* buffer) const {
    pjrt::ToHost given;
    given.buffer = buffer;
    Check(api_->Call(pjrt::kToHost, &given));
    std::string data(given.size, '\0');
    given.data = data.data();
    Check(api_->Call(pjrt::kToHost, &given));
    Await(given.done);
    return data;
  }

 private:
  void Check(pjrt::Error* error) const {
    if (error == nullptr) return;
    pjrt::ErrorMessage given;
    given.error = error;
    api_->Call(pjrt::kErrorMessage, &given);
    Fail(std::string(given.message, given.size));
  }

  void Await(pjrt::Event* event) const {
    pjrt::AwaitEvent given;
    given.event = event;
    Check(api_->Call(pjrt::kAwaitEvent, &given));
    pjrt::DestroyEvent done;
    done.event = event;
    Check(api_->Call(pjrt::kDestroyEvent, &done));
  }

  const pjrt::Api* api_;
  pjrt::Client* client_ = nullptr;
  pjrt::Device* device_ = nullptr;
};

std::vector<int64_t> ReadDimensions(const std::string& text) {
  std::vector<int64_t> dimensions;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, 'x');) dimensions.push_back(std::stoll(part));
  return dimensions;
}

void PrintTime(const Plugin& plugin, pjrt::Executable* executable, const std::vector<pjrt::Buffer*>& operands) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t spent = std::clock();
  pjrt::Buffer* result = plugin.Run(executable, operands);
  const std::chrono::duration<double, std::milli> clock = std::chrono::steady_clock::now() - start;
  const double processor = 1e3 * static_cast<double>(std::clock() - spent) / CLOCKS_PER_SEC;
  plugin.Destroy(result);
  std::printf("%.4f %.4f ", clock.count(), processor);
}

constexpr char kUsage[] =
    "usage: host PLUGIN (--optimize PROGRAM OPTIMIZED | [--runs COUNT] MODULE RESULT [DIMENSIONS:FILE]...)";

void Run(std::vector<std::string> words) {
  if (words.size() < 3) Fail(kUsage);
  int runs = 0;
  if (words[1] == "--runs" && words.size() >= 5) {
    runs = std::stoi(words[2]);
    words.erase(words.begin() + 1, words.begin() + 3);
  }
  Plugin plugin(words[0]);
  plugin.AddKernels();
  plugin.Start();
  if (words[1] == "--optimize") {
    if (words.size() != 4) Fail(kUsage);
    std::ofstream(words[3], std::ios::binary) << plugin.OptimizedModule(plugin.Compile(Read(words[2]), "mlir"));
    return;
  }
  pjrt::Executable* executable = plugin.Compile(Read(words[1]), "hlo");
  std::vector<pjrt::Buffer*> operands;
  for (size_t i = 3; i < words.size(); ++i) {
    const size_t colon = words[i].find(':');
    operands.push_back(plugin.Upload(Read(words[i].substr(colon + 1)), ReadDimensions(words[i].substr(0, colon))));
  }
  pjrt::Buffer* result = plugin.Run(executable, operands);
  std::ofstream(words[2], std::ios::binary) << plugin.Download(result);
  plugin.Destroy(result);
  if (runs > 0) std::puts("ready");
  std::fflush(stdout);
  for (std::string line; runs > 0 && std::getline(std::cin, line);) {
    plugin.Destroy(plugin.Run(executable, operands));
    for (int i = 0; i < runs; ++i) PrintTime(plugin, executable, operands);
    std::puts("");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    Run({words + 1, words + count});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "host: %s\n", error.what());
    return 1;
  }
}
