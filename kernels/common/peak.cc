#include "common/peak.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "common/processor.h"

namespace hlo_dispatch {

namespace {

// Starting a thread takes some ten microseconds where a processor is free.
constexpr std::chrono::milliseconds kTimeout(1);

int64_t ProcessorTime() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// What the threads of one probe share.
class Probe {
 public:
  Probe(int threads, int64_t rounds) : threads_(threads), rounds_(rounds) {}

  void Run() {
    if (!WaitForAll()) return;
    const int64_t begin = ProcessorTime();
    const float result = Peak().run(rounds_);
    const int64_t took = ProcessorTime() - begin;
    if (result != result) return;
    int64_t slowest = slowest_.load();
    while (slowest < took && !slowest_.compare_exchange_weak(slowest, took)) {
    }
    finished_.fetch_add(1);
  }

  int64_t Slowest() const { return finished_.load() == threads_ ? slowest_.load() : 0; }

 private:
  // Whether all threads start before one of them times out.
  bool WaitForAll() {
    here_.fetch_add(1);
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    while (here_.load() < threads_) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }

  const int threads_;
  const int64_t rounds_;
  std::atomic<int> here_{0}, finished_{0};
  std::atomic<int64_t> slowest_{0};
};

}  // namespace

const PeakArithmetic& Peak() { return ForThisProcessor(plain::kPeak, avx2::kPeak, avx512::kPeak); }

int64_t NanosecondsAtPeak(int threads, int64_t rounds) {
  threads = std::max(threads, 1);
  Probe probe(threads, rounds);
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(threads));
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back([&probe] { probe.Run(); });
  } catch (const std::system_error&) {
    // The others time out.
  }
  probe.Run();
  for (std::thread& other : others) other.join();
  return probe.Slowest();
}

}  // namespace hlo_dispatch
