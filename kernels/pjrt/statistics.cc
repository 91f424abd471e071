#include "pjrt/statistics.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace hlo_dispatch::pjrt {

namespace {

constexpr const char* kNames[] = {"dispatched", "unchanged", "failed"};
std::atomic<int64_t> counts[3];
std::mutex mutex;
const char* first_failure = "";

}  // namespace

void Count(Outcome outcome) { ++counts[static_cast<int>(outcome)]; }

void CountFailure(const std::string& sentence) {
  Count(Outcome::kFailed);
  const std::lock_guard<std::mutex> lock(mutex);
  if (*first_failure != '\0') return;
  first_failure = strdup(sentence.c_str());
  std::fprintf(stderr, "hlo-dispatch: a program was not dispatched, and runs as the runtime compiled it: %s\n",
               first_failure);
}

}  // namespace hlo_dispatch::pjrt

// Programs that were dispatched, unchanged or failed; -1: there is no such count.
extern "C" __attribute__((visibility("default"))) int64_t hlo_dispatch_pjrt_count(const char* name) {
  for (int i = 0; i < 3; ++i) {
    if (std::strcmp(name, hlo_dispatch::pjrt::kNames[i]) == 0) return hlo_dispatch::pjrt::counts[i];
  }
  return -1;
}

// Why the first program that failed was not dispatched; empty: none failed.
extern "C" __attribute__((visibility("default"))) const char* hlo_dispatch_pjrt_failure() {
  const std::lock_guard<std::mutex> lock(hlo_dispatch::pjrt::mutex);
  return hlo_dispatch::pjrt::first_failure;
}
