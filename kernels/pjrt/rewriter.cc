#include "pjrt/rewriter.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "pjrt/process.h"
#include "pjrt/runtime.h"
#include "pjrt/wire.h"

namespace hlo_dispatch::pjrt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Starts of a rewriter in one process: each of a few programs may be one that ends it.
constexpr int kMostStarts = 3;
// How long an answer is waited for is what this variable says, or grows with what the runtime took to compile the
// program: the verification compiles it twice more and runs it, on a machine that may be busier by then.
constexpr char kSecondsVariable[] = "HLO_DISPATCH_PJRT_SECONDS";
constexpr int kSeconds = 120, kCompiles = 20, kMostSeconds = 1800;
constexpr int kPastStreams = 3;
constexpr char kEnded[] = "the rewriter ended before it answered: it was killed, or failed as standard error says";
// What the rewriter's interpreter runs. Where it has no hlo-dispatch it says so, in a message as below.
constexpr char kProgram[] = R"(
import sys
try:
    from hlo_dispatch.pjrt_plugin.__main__ import main
except ImportError as error:
    import os, socket, struct
    file = os.memfd_create("hlo_dispatch_answer")
    os.write(file, str(error).encode())
    socket.send_fds(socket.socket(fileno=3), [struct.pack("=IIQ", 3, 4, 0)], [file])
    sys.exit(1)
main()
)";

// A message on the socket; dispatch/hlo_dispatch/pjrt_plugin/channel.py has the same. Each has one descriptor with it:
// a file in memory, the hello's of the process.
struct Message {
  uint32_t version;
  uint32_t kind;
  uint64_t size;
};
constexpr uint32_t kVersion = 3;
enum Kind : uint32_t { kHello = 0, kRewrite = 1, kUnchanged = 2, kRewritten = 3, kFailed = 4 };

class Descriptor {
 public:
  // `shown` has its number for as long as it is this object's.
  explicit Descriptor(int number, std::atomic<int>* shown = nullptr) : number_(number), shown_(shown) { Show(number); }
  ~Descriptor() {
    const int number = Release();
    if (number >= 0) close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  int Release() {
    Show(-1);
    return std::exchange(number_, -1);
  }

 private:
  void Show(int number) {
    if (shown_ != nullptr) *shown_ = number;
  }

  int number_;
  std::atomic<int>* shown_;
};

// How long an answer is waited for, about a program that took so long to compile.
milliseconds TimeLimit(double compile_seconds) {
  const char* text = secure_getenv(kSecondsVariable);
  const int named = text == nullptr ? 0 : std::atoi(text);
  if (named > 0) return std::chrono::seconds(named);
  const double seconds = std::min<double>(kMostSeconds, kSeconds + kCompiles * compile_seconds);
  return milliseconds(static_cast<int64_t>(1000 * seconds));
}

std::string WordsOf(int error) { return std::strerror(error); }

void WriteAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw "the module cannot be handed to the rewriter: " + WordsOf(errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

std::string ReadAll(int file) {
  const off_t size = lseek(file, 0, SEEK_END);
  std::string bytes(static_cast<size_t>(std::max<off_t>(size, 0)), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw std::string("the rewriter's answer ends too early");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

// A message with room for one descriptor.
struct Envelope {
  explicit Envelope(Message* message) {
    part = {message, sizeof(*message)};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  iovec part{};
  msghdr header{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

void Send(int socket, Message message, int file) {
  Envelope envelope(&message);
  cmsghdr* control = CMSG_FIRSTHDR(&envelope.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &file, sizeof(file));
  while (sendmsg(socket, &envelope.header, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) throw "the rewriter has ended: " + WordsOf(errno);
  }
}

// The next message, and its descriptor or -1.
Message Receive(int socket, milliseconds time_limit, int* file) {
  const Clock::time_point deadline = Clock::now() + time_limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{socket, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) throw "the rewriter did not answer within " + std::to_string(time_limit.count() / 1000) + " s";
    Message message{};
    Envelope envelope(&message);
    const ssize_t count = recvmsg(socket, &envelope.header, MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || (count < 0 && errno == ECONNRESET)) throw std::string(kEnded);
    *file = -1;
    const cmsghdr* control = CMSG_FIRSTHDR(&envelope.header);
    if (control != nullptr && control->cmsg_type == SCM_RIGHTS) std::memcpy(file, CMSG_DATA(control), sizeof(*file));
    if (count == sizeof(message) && message.version == kVersion) return message;
    if (*file >= 0) close(*file);
    throw std::string("the rewriter is another version's: install the same hlo-dispatch for the plugin and its Python");
  }
}

// The values of the lines "name=value" in a text.
std::vector<std::string> Lines(const std::string& text, const std::string& name) {
  std::vector<std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + "=", 0) == 0) values.push_back(line.substr(name.size() + 1));
  }
  return values;
}

std::string Line(const std::string& text, const std::string& name) {
  const std::vector<std::string> values = Lines(text, name);
  return values.empty() ? "" : values.front();
}

// The lines "kernel=TARGET SYMBOL PATH".
std::vector<UsersKernel> Kernels(const std::string& text) {
  std::vector<UsersKernel> kernels;
  for (const std::string& value : Lines(text, "kernel")) {
    const size_t symbol = value.find(' ') + 1, path = value.find(' ', symbol) + 1;
    if (symbol == 0 || path == 0) throw std::string("the rewriter's answer is not understood");
    kernels.push_back({value.substr(0, symbol - 1), value.substr(symbol, path - symbol - 1), value.substr(path)});
  }
  return kernels;
}

std::string Hexadecimal(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Rewriter* the_rewriter = nullptr;

}  // namespace

Rewriter& Rewriter::Get() {
  static Rewriter* rewriter = new Rewriter();
  return *rewriter;
}

Rewriter::Rewriter() {
  the_rewriter = this;
  // A forked process has the socket as well, which is the host's: it would keep the rewriter alive, and answers would
  // go astray.
  pthread_atfork(nullptr, nullptr, [] {
    the_rewriter->is_forked_ = true;
    for (std::atomic<int>* end : {&the_rewriter->socket_, &the_rewriter->starting_[0], &the_rewriter->starting_[1]}) {
      const int number = end->exchange(-1);
      if (number >= 0) close(number);
    }
  });
}

Rewriting Rewriter::Rewrite(const Request& request) {
  if (is_forked_) throw std::string("a forked process has no rewriter");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!problem_.empty()) throw problem_;
  if (socket_ < 0) Start();
  try {
    return Ask(request);
  } catch (const std::string&) {
    Stop();
    throw;
  }
}

void Rewriter::Start() {
  if (starts_ >= kMostStarts) {
    throw problem_ = "the rewriter ended " + std::to_string(starts_) + " times, and is not started again";
  }
  ++starts_;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw "there is no socket: " + WordsOf(errno);
  // Standard streams may be closed, and what takes their place would be the rewriter's.
  Descriptor own(fcntl(ends[0], F_DUPFD_CLOEXEC, kPastStreams), &starting_[0]);
  Descriptor others(fcntl(ends[1], F_DUPFD_CLOEXEC, kPastStreams), &starting_[1]);
  close(ends[0]);
  close(ends[1]);
  if (own.get() < 0 || others.get() < 0) throw "there is no socket: " + WordsOf(errno);
  const Runtime& runtime = Runtime::Get();
  std::string interpreter;
  try {
    interpreter = Interpreter();
    Spawn({interpreter, "-P", "-c", kProgram, runtime.Identity()}, EnvironmentForRewriter(runtime.path()),
          others.get());
  } catch (const std::string& problem) {
    throw problem_ = problem;
  }
  close(others.Release());
  int number = -1;
  Message hello{};
  try {
    hello = Receive(own.get(), TimeLimit(0), &number);
  } catch (const std::string& problem) {
    const std::string sentence = problem + " (" + interpreter + ", as it started)";
    // One that was killed may be started again; what is silent or another version's would be so again.
    if (problem != kEnded) problem_ = sentence;
    throw sentence;
  }
  Descriptor process(number);
  if (hello.kind != kHello || process.get() < 0) {
    // It will fail so each time.
    throw problem_ = interpreter + ", the rewriter's Python, has no hlo-dispatch that can be imported: " +
                     (process.get() < 0 ? "it says nothing" : ReadAll(process.get()));
  }
  process_ = process.Release();
  socket_ = own.get();
  own.Release();
}

void Rewriter::Stop() {
  // It may be stuck, and not notice that the socket is closed.
  if (process_ >= 0) syscall(SYS_pidfd_send_signal, process_, SIGKILL, nullptr, 0);
  if (process_ >= 0) close(std::exchange(process_, -1));
  const int socket = socket_.exchange(-1);
  if (socket >= 0) close(socket);
}

Rewriting Rewriter::Ask(const Request& request) {
  const milliseconds time_limit = TimeLimit(request.seconds);
  // In CLOCK_MONOTONIC's time, which all processes have in common.
  const auto deadline = std::chrono::duration_cast<milliseconds>((Clock::now() + time_limit).time_since_epoch());
  const std::string lines = "devices=" + std::to_string(DevicesOf(request.options)) +
                            "\noptions=" + Hexadecimal(WithoutDevices(request.options)) +
                            "\ntime_limit=" + std::to_string(time_limit.count()) +
                            "\ndeadline=" + std::to_string(deadline.count()) + "\n";
  const size_t size = request.module.size() + lines.size();
  rlimit largest{};
  // A longer write would end the host by a signal.
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < size) {
    throw "the module's " + std::to_string(size) + " bytes are more than a file may have (ulimit -f)";
  }
  const Descriptor file(memfd_create("hlo_module", MFD_CLOEXEC));
  if (file.get() < 0) throw "there is no file in memory: " + WordsOf(errno);
  WriteAll(file.get(), request.module);
  WriteAll(file.get(), lines);
  Send(socket_, {kVersion, kRewrite, request.module.size()}, file.get());
  int number = -1;
  const Message message = Receive(socket_, time_limit, &number);
  const Descriptor answer(number);
  Rewriting made;
  if (message.kind == kUnchanged) return made;
  std::string bytes = answer.get() < 0 ? "" : ReadAll(answer.get());
  if (message.kind == kFailed) {
    made.failure = std::move(bytes);
    return made;
  }
  if (message.kind != kRewritten || message.size > bytes.size())
    throw std::string("the rewriter's answer is not understood");
  // The module, then lines about libraries.
  const std::string said = bytes.substr(message.size);
  bytes.resize(message.size);
  return {true,
          "",
          std::move(bytes),
          Line(said, "onednn"),
          Line(said, "onemkl"),
          Line(said, "svml"),
          Line(said, "onednn_bound") == "1",
          Kernels(said)};
}

}  // namespace hlo_dispatch::pjrt
