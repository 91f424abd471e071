#include "common/machine_speed.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace hlo_dispatch {

namespace {

constexpr int kTrials = 8;
constexpr int kSteps = 2000;
constexpr int kSums = 8, kLanes = 16;  // enough of them that none waits for the one before
constexpr size_t kBytes = 64 << 10;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename Work>
double Fastest(const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTrials; ++i) {
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

// What waking a thread that sleeps takes the one that wakes it.
double WakeUp() {
  std::mutex mutex;
  std::condition_variable all_sleep, wake;
  int sleeping = 0, woken = 0;
  std::vector<std::thread> threads;
  try {
    for (int i = 0; i < kTrials; ++i) {
      threads.emplace_back([&] {
        std::unique_lock<std::mutex> lock(mutex);
        ++sleeping;
        all_sleep.notify_one();
        wake.wait(lock, [&] { return woken > 0; });
        --woken;
      });
    }
  } catch (const std::system_error&) {
    // The process may have no more threads: what there are have to do.
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    all_sleep.wait(lock, [&] { return sleeping == static_cast<int>(threads.size()); });
    woken = kTrials;
  }
  const double best = Fastest([&] { wake.notify_one(); });
  wake.notify_all();
  for (std::thread& thread : threads) thread.join();
  // Where no thread can be had, none can be woken.
  return threads.empty() ? std::numeric_limits<double>::infinity() : best;
}

MachineSpeed Measured() {
  MachineSpeed speed{};
  // Sums converge to 1: neither overflows nor becomes subnormal.
  volatile float factor = 0.5f, result = 0;
  const double work = Fastest([&] { result = MultiplyAdds(factor); });
  speed.multiply_adds = static_cast<double>(kSteps) * kSums * kLanes / work;
  std::vector<char> from(kBytes, 1), to(kBytes);
  const double copy = Fastest([&] {
    std::memcpy(to.data(), from.data(), kBytes);
    result = to[kBytes / 2];
  });
  speed.bytes = 2.0 * kBytes / copy;
  speed.wake_up = WakeUp();
  return speed;
}

}  // namespace

const MachineSpeed& MachineSpeed::Get() {
  static const MachineSpeed speed = Measured();
  return speed;
}

}  // namespace hlo_dispatch
