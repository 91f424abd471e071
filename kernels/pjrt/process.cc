#include "pjrt/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "pjrt/runtime.h"

namespace hlo_dispatch::pjrt {

namespace {

constexpr char kVariable[] = "HLO_DISPATCH_PYTHON";
constexpr int kSocket = 3;

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What to spawn, and how that went.
struct Request {
  char** words;
  char** environment;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int failed = 0;
};

int SpawnAndEnd(void* argument) {
  auto* request = static_cast<Request*>(argument);
  pid_t ignored = 0;
  request->failed = posix_spawn(&ignored, request->words[0], &request->actions, &request->attributes, request->words,
                                request->environment);
  return 0;
}

// Runs SpawnAndEnd in a process between the host and the new one, which shares the host's memory, ends without a
// signal, and leaves its child to init.
void RunBetween(Request* request) {
  constexpr size_t kStack = 1 << 18;
  const std::unique_ptr<char[]> stack(new char[kStack]);
  const auto top = reinterpret_cast<uintptr_t>(stack.get() + kStack) & ~static_cast<uintptr_t>(63);
  sigset_t all, before;
  sigfillset(&all);
  // A handler of the host's must not run there.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int pid = clone(SpawnAndEnd, reinterpret_cast<void*>(top), CLONE_VM | CLONE_VFORK, request);
  if (pid < 0) {
    request->failed = errno;
  } else {
    while (waitpid(pid, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

std::string Interpreter() {
  if (getauxval(AT_SECURE) != 0)
    throw std::string("this process runs with another user's rights, and starts no interpreter");
  const char* named = std::getenv(kVariable);
  if (named != nullptr && *named != '\0') {
    if (*named == '/' && access(named, X_OK) == 0) return named;
    throw std::string(kVariable) + " names " + named + ", which is no absolute path of a program";
  }
  // PREFIX/lib/python3.12/site-packages/hlo_dispatch/libhlo_dispatch_pjrt.so
  const std::string version = Parent(Parent(Parent(OwnPath())));
  const std::string name = version.substr(version.rfind('/') + 1);
  const std::string path = Parent(Parent(version)) + "/bin/" + name;
  if (name.rfind("python", 0) == 0 && access(path.c_str(), X_OK) == 0) return path;
  throw std::string("there is no Python beside ") + OwnPath() + "; name one that has hlo-dispatch in " + kVariable;
}

std::vector<std::string> EnvironmentForRewriter(const std::string& runtime) {
  std::vector<std::string> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('='));
    const bool is_left_out = name.rfind("PJRT_", 0) == 0 || name == "JAX_PLATFORMS" || name == "JAX_PLATFORM_NAME" ||
                             name == "HLO_DISPATCH" || name == "HLO_DISPATCH_PJRT_RUNTIME";
    if (!is_left_out) kept.push_back(text);
  }
  for (const char* text : {"JAX_PLATFORMS=cpu", "HLO_DISPATCH=0"}) kept.push_back(text);
  kept.push_back("HLO_DISPATCH_PJRT_RUNTIME=" + runtime);
  return kept;
}

void Spawn(const std::vector<std::string>& words, const std::vector<std::string>& environment, int socket) {
  std::vector<char*> word_pointers = Pointers(words), environment_pointers = Pointers(environment);
  Request request{word_pointers.data(), environment_pointers.data(), {}, {}};
  posix_spawn_file_actions_init(&request.actions);
  posix_spawn_file_actions_adddup2(&request.actions, socket, kSocket);
  posix_spawn_file_actions_addopen(&request.actions, 0, "/dev/null", O_RDONLY, 0);
  if (fcntl(2, F_GETFD) < 0) posix_spawn_file_actions_addopen(&request.actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&request.actions, 2, 2);  // which the host may close on exec
  posix_spawn_file_actions_adddup2(&request.actions, 2, 1);
  posix_spawn_file_actions_addclosefrom_np(&request.actions, kSocket + 1);
  posix_spawnattr_init(&request.attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&request.attributes, &none);
  posix_spawnattr_setsigdefault(&request.attributes, &all);
  // A session of its own: what the terminal sends to the host does not end it.
  posix_spawnattr_setflags(&request.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  RunBetween(&request);
  posix_spawn_file_actions_destroy(&request.actions);
  posix_spawnattr_destroy(&request.attributes);
  if (request.failed != 0) throw words[0] + " cannot be started: " + std::strerror(request.failed);
}

}  // namespace hlo_dispatch::pjrt
