// The rewriter: a Python process beside the host, in which hlo-dispatch's pass runs (dispatch/hlo_dispatch/
// pjrt_plugin). It is started when it is first needed, and ends when the host does.
#ifndef HLO_DISPATCH_PJRT_REWRITER_H_
#define HLO_DISPATCH_PJRT_REWRITER_H_

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/users_kernels.h"

namespace hlo_dispatch::pjrt {

// A program of a host: its module, and how the host compiles it.
struct Request {
  std::string_view module;   // a serialized HloModuleProto
  std::string_view options;  // a serialized CompileOptionsProto
  double seconds;            // what the runtime took to compile it
};

// What the rewriter makes of a module.
struct Rewriting {
  bool is_rewritten = false;
  std::string failure;  // why it is not; empty where nothing is to be dispatched
  std::string module;
  // The vendors' libraries that the calls were planned for; empty: none.
  std::string onednn, onemkl, svml;
  bool binds_onednn = false;         // each thread of it to a processor
  std::vector<UsersKernel> kernels;  // which the calls need
};

class Rewriter {
 public:
  // The process's.
  static Rewriter& Get();

  // Rewrites a module; throws a sentence where the rewriter ends, or does not answer. One module at a time.
  Rewriting Rewrite(const Request& request);

 private:
  Rewriter();
  void Start();
  void Stop();
  Rewriting Ask(const Request& request);

  std::mutex mutex_;
  std::string problem_;  // why none is started any more
  int starts_ = 0;
  std::atomic<int> socket_{-1};
  std::atomic<int> starting_[2] = {-1, -1};  // both ends, while a rewriter is started
  int process_ = -1;                         // a descriptor of it
  std::atomic<bool> is_forked_{false};
};

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_REWRITER_H_
