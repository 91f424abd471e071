#include "common/machine_speed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace hlo_dispatch {

namespace {

constexpr int kTrials = 5, kWakeUps = 15;
constexpr double kLongest = 5e-3;  // seconds of waking: on a busy machine each time may take as long
constexpr int kSteps = 2000;
constexpr int kSums = 8, kLanes = 16;  // enough of them that none waits for the one before
constexpr size_t kBytes = 64 << 10;
constexpr auto kAsleep = std::chrono::microseconds(30);  // until a thread that waits sleeps

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename Work>
double Fastest(int trials, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < trials; ++i) {
    const double begin = Now();
    work();
    best = std::min(best, Now() - begin);
  }
  return best;
}

typedef float Vector __attribute__((vector_size(4 * kLanes)));

// The same in each instruction set; the loader takes the best one that the processor has.
__attribute__((target_clones("avx512f", "avx2", "default"))) float MultiplyAdds(float factor) {
  Vector sums[kSums] = {};
  const Vector factors = factor - Vector{};
  for (int step = 0; step < kSteps; ++step) {
    for (Vector& sum : sums) sum = sum * factors + factors;
  }
  Vector total{};
  for (const Vector& sum : sums) total += sum;
  return total[0];
}

// A thread that sleeps until it is woken.
class Sleeper {
 public:
  Sleeper() : thread_([this] { Sleep(); }) {}
  ~Sleeper() {
    Tell(kEnd);
    thread_.join();
  }

  // The seconds that waking it took, and those until it ran.
  void Wake(double& own, double& until) {
    std::this_thread::sleep_for(kAsleep);
    awake_ = 0;
    const double begin = Now();
    Tell(kWake);
    own = Now() - begin;
    while (awake_ == 0) std::this_thread::yield();
    until = awake_ - begin;
  }

 private:
  enum Word { kNothing, kWake, kEnd };

  void Tell(Word word) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      word_ = word;
    }
    changed_.notify_one();
  }

  void Sleep() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return word_ != kNothing; });
      if (word_ == kEnd) return;
      word_ = kNothing;
      awake_ = Now();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Word word_ = kNothing;
  std::atomic<double> awake_{0};
  std::thread thread_;  // the last one: it uses the others
};

MachineSpeed Measured() {
  MachineSpeed speed{};
  volatile float result = 0.5f;
  const double work = Fastest(kTrials, [&] { result = MultiplyAdds(result); });
  speed.multiply_adds = static_cast<double>(kSteps) * kSums * kLanes / work;
  std::vector<char> from(kBytes, 1), to(kBytes);
  const double copy = Fastest(kTrials, [&] {
    std::memcpy(to.data(), from.data(), kBytes);
    result = to[static_cast<size_t>(result) % kBytes];
  });
  speed.bytes = 2.0 * kBytes / copy;
  speed.wake_up = speed.latency = std::numeric_limits<double>::infinity();
  Sleeper sleeper;
  const double begin = Now();
  for (int i = 0; i < kWakeUps && (i == 0 || Now() < begin + kLongest); ++i) {
    double own, until;
    sleeper.Wake(own, until);
    speed.wake_up = std::min(speed.wake_up, own);
    speed.latency = std::min(speed.latency, until);
  }
  return speed;
}

}  // namespace

const MachineSpeed& MachineSpeed::Get() {
  static const MachineSpeed speed = Measured();
  return speed;
}

}  // namespace hlo_dispatch
