// A process that the host does not notice: no child of it in the end, so that no SIGCHLD arrives and no wait() returns
// it.
#ifndef HLO_DISPATCH_PJRT_PROCESS_H_
#define HLO_DISPATCH_PJRT_PROCESS_H_

#include <string>
#include <vector>

namespace hlo_dispatch::pjrt {

// The interpreter that HLO_DISPATCH_PYTHON names, or that of the environment which this library is installed in; throws
// a sentence where there is none. It never comes from PATH.
std::string Interpreter();

// The host's environment, without what would have JAX load this plugin in turn.
std::vector<std::string> EnvironmentForRewriter(const std::string& runtime);

// Starts a program in a session of its own, with `socket` as descriptor 3, the host's standard error, and nothing else
// of the host's. Throws a sentence where that fails.
void Spawn(const std::vector<std::string>& words, const std::vector<std::string>& environment, int socket);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_PROCESS_H_
