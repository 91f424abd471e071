#include "pjrt/exchange.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "hlo_dispatch/kernels.h"
#include "pjrt/rewriter.h"
#include "pjrt/runtime.h"
#include "pjrt/statistics.h"
#include "pjrt/wire.h"

namespace hlo_dispatch::pjrt {

namespace {

constexpr std::string_view kHlo = "hlo", kOptimizedFormat = "hlo_with_config";

// Why our kernels are not the runtime's; empty: they are.
const std::string& RegistrationProblem() {
  static const auto* problem = new std::string(Runtime::Get().RegisterKernels());
  return *problem;
}

void Check(Error* error, const char* what) {
  if (error != nullptr) throw what + (": " + Runtime::Get().Taken(error));
}

void Check(hlo_dispatch_error* error) {
  if (error == nullptr) return;
  const std::string message = hlo_dispatch_error_message(error);
  hlo_dispatch_error_free(error);
  throw message;
}

void Destroy(Place place, void* executable) {
  Widest<ExecutableDestroy> arguments;
  arguments.executable = executable;
  if (Error* error = Runtime::Get().Call(place, &arguments)) Runtime::Get().Taken(error);
}

// The two ways to compile: for a client, which loads the executable, and without one.
struct OfClient {
  using Given = ClientCompile;
  static constexpr Place kCompilePlace = kClientCompile, kDestroyPlace = kLoadedExecutableDestroy;
};
struct OfTopology {
  using Given = Compile;
  static constexpr Place kCompilePlace = kCompile, kDestroyPlace = kExecutableDestroy;
};

// What the runtime made of a program before it generated code, as it serializes it.
std::string OptimizedOf(Executable* executable) {
  const Runtime& runtime = Runtime::Get();
  Widest<Program> program;
  Widest<OptimizedProgram> arguments;
  arguments.executable = executable;
  arguments.program = &program;
  constexpr char kWhat[] = "the runtime does not show its optimized program";
  Check(runtime.Call(kOptimizedProgram, &arguments), kWhat);
  std::string code(program.code_size, '\0');
  program.code = code.data();
  Check(runtime.Call(kOptimizedProgram, &arguments), kWhat);
  if (std::string_view(program.format, program.format_size) != kOptimizedFormat) {
    throw "the runtime shows its optimized program as " + std::string(program.format, program.format_size);
  }
  return code;
}

std::string OptimizedOf(LoadedExecutable* loaded) {
  Widest<GetExecutable> arguments;
  arguments.loaded = loaded;
  Check(Runtime::Get().Call(kGetExecutable, &arguments), "the runtime does not show its executable");
  try {
    std::string code = OptimizedOf(arguments.executable);
    Destroy(kExecutableDestroy, arguments.executable);
    return code;
  } catch (...) {
    Destroy(kExecutableDestroy, arguments.executable);
    throw;
  }
}

// How many of a program's devices are this process's.
uint64_t DevicesHere(LoadedExecutable* loaded) {
  Widest<AddressableDevices> arguments;
  arguments.loaded = loaded;
  Check(Runtime::Get().Call(kAddressableDevices, &arguments), "the runtime does not show its devices");
  return arguments.count;
}
uint64_t DevicesHere(Executable*) { return 1; }

// The libraries that a module's calls were planned for have to be this process's.
void Load(const Rewriting& rewriting) {
  if (!rewriting.onednn.empty())
    Check(hlo_dispatch_load_onednn(rewriting.onednn.c_str(), rewriting.binds_onednn, nullptr));
  if (!rewriting.onemkl.empty()) Check(hlo_dispatch_load_onemkl(rewriting.onemkl.c_str(), nullptr));
  if (!rewriting.svml.empty()) Check(hlo_dispatch_load_svml(rewriting.svml.c_str(), nullptr));
  for (const UsersKernel& kernel : rewriting.kernels) Add(kernel);
}

// Puts the dispatched executable in place of the one that the arguments have. Whether it did; throws a sentence.
template <typename Way>
bool Exchange(typename Way::Given* arguments, double compile_seconds) {
  const uint64_t devices = DevicesOf({arguments->options, arguments->options_size});
  // Several processes may decide differently, and replicas of one state would drift apart.
  if (devices > 1 && DevicesHere(arguments->executable) < devices) return false;
  const std::string optimized = OptimizedOf(arguments->executable);
  const std::optional<std::string_view> module = ModuleOf(optimized);
  if (!module) throw std::string("the runtime's optimized program has no module");
  // What a user's own tables begin with is theirs to say.
  if (!HasSomethingToMatch(*module) && secure_getenv("HLO_DISPATCH_TABLES") == nullptr) return false;
  if (!RegistrationProblem().empty()) throw RegistrationProblem();
  Rewriting rewriting =
      Rewriter::Get().Rewrite({*module, {arguments->options, arguments->options_size}, compile_seconds});
  if (!rewriting.failure.empty()) throw rewriting.failure;
  if (!rewriting.is_rewritten) return false;
  Load(rewriting);
  Widest<Program> program;
  program.code = rewriting.module.data();
  program.code_size = rewriting.module.size();
  program.format = kHlo.data();
  program.format_size = kHlo.size();
  const std::string options = WithBackendOnly({arguments->options, arguments->options_size});
  Widest<typename Way::Given> again(*arguments);
  again.program = &program;
  again.options = options.data();
  again.options_size = options.size();
  Check(Runtime::Get().Call(Way::kCompilePlace, &again), "the runtime does not compile the dispatched module");
  Destroy(Way::kDestroyPlace, arguments->executable);
  arguments->executable = again.executable;
  return true;
}

template <typename Way>
Error* CompileAndExchange(typename Way::Given* arguments) {
  PrepareRuntime();
  const Widest<Program> program(*arguments->program);
  Widest<typename Way::Given> given(*arguments);
  given.program = &program;
  const auto start = std::chrono::steady_clock::now();
  if (Error* error = Runtime::Get().Call(Way::kCompilePlace, &given)) return error;
  const std::chrono::duration<double> compile = std::chrono::steady_clock::now() - start;
  arguments->executable = given.executable;
  if (IsOff()) return nullptr;
  try {
    Count(Exchange<Way>(arguments, compile.count()) ? Outcome::kDispatched : Outcome::kUnchanged);
  } catch (const std::string& sentence) {
    CountFailure(sentence);
  } catch (const std::exception& error) {
    CountFailure(error.what());
  }
  return nullptr;
}

}  // namespace

bool IsOff() {
  for (const char* name : {"HLO_DISPATCH", "HLO_DISPATCH_POLICY"}) {
    const char* value = secure_getenv(name);
    const std::string_view text = value == nullptr ? "" : value;
    if (text == "0" || text == "never") return true;
  }
  return false;
}

void PrepareRuntime() { RegistrationProblem(); }

Error* CompileForClient(ClientCompile* arguments) { return CompileAndExchange<OfClient>(arguments); }

Error* CompileForTopology(Compile* arguments) { return CompileAndExchange<OfTopology>(arguments); }

}  // namespace hlo_dispatch::pjrt
