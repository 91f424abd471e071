#include "common/bound_threads.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace hlo_dispatch {

namespace {

constexpr size_t kMaxNameLength = 15;  // of a Linux thread

std::vector<int> ProcessorsOf(pid_t thread) {
  std::vector<int> processors;
  cpu_set_t set;
  if (sched_getaffinity(thread, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

// A thread that may not be moved (a processor was taken from the process since) runs where it runs.
void Bind(pid_t thread, const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int processor : processors) CPU_SET(processor, &set);
  static_cast<void>(sched_setaffinity(thread, sizeof(set), &set));
}

}  // namespace

std::vector<int> AllowedProcessors() { return ProcessorsOf(getpid()); }

void RunOn(const std::vector<int>& processors) {
  if (!processors.empty()) Bind(0, processors);
}

std::vector<pid_t> ThreadsNamed(const std::string& name) {
  const std::string wanted = name.substr(0, kMaxNameLength);
  std::vector<pid_t> threads;
  std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  if (tasks == nullptr) return threads;
  while (const dirent* entry = readdir(tasks.get())) {
    const pid_t thread = static_cast<pid_t>(std::atoi(entry->d_name));
    std::ifstream file("/proc/self/task/" + std::string(entry->d_name) + "/comm");
    std::string found;
    if (thread > 0 && std::getline(file, found) && found == wanted) threads.push_back(thread);
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

void BindEach(const std::vector<pid_t>& threads, const std::vector<int>& processors) {
  if (threads.size() != processors.size()) return;
  std::vector<int> left = processors;
  std::vector<pid_t> unbound;
  for (pid_t thread : threads) {
    const std::vector<int> given = ProcessorsOf(thread);
    const auto found = given.size() == 1 ? std::find(left.begin(), left.end(), given[0]) : left.end();
    if (found == left.end()) {
      unbound.push_back(thread);
    } else {
      left.erase(found);
    }
  }
  for (size_t i = 0; i < unbound.size(); ++i) Bind(unbound[i], {left[i]});
}

}  // namespace hlo_dispatch
