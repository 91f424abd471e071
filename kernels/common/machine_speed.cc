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

#include "common/peak.h"
#include "common/processor.h"

namespace hlo_dispatch {

namespace {

constexpr int kTrials = 8;
constexpr int64_t kRounds = 1000;  // of multiply-adds, some microseconds
constexpr size_t kBytes = 64 << 10;

// A processor's upper vector lanes take so many trials of both to come to speed.
constexpr int kWarmTrials = 16;
// Less is a matter of chance.
constexpr double kClearly = 1.3;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename Work>
double Seconds(const Work& work) {
  const double begin = Now();
  work();
  return Now() - begin;
}

template <typename Work>
double Fastest(const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTrials; ++i) best = std::min(best, Seconds(work));
  return best;
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

// Multiply-adds of bf16 in the time of one of f32; in turns, so that both find the same processor.
double Bf16OverF32() {
  const PeakArithmetic &narrow = avx512_bf16::kPeak, &wide = avx512::kPeak;
  volatile float result = 0;
  double of_narrow = std::numeric_limits<double>::infinity(), of_wide = of_narrow;
  for (int trial = 0; trial < kWarmTrials; ++trial) {
    of_wide = std::min(of_wide, Seconds([&] { result = wide.run(kRounds); }));
    of_narrow = std::min(of_narrow, Seconds([&] { result = narrow.run(kRounds); }));
  }
  return of_wide / wide.multiply_adds / (of_narrow / narrow.multiply_adds);
}

MachineSpeed Measured() {
  MachineSpeed speed{};
  volatile float result = 0;
  const double work = Fastest([&] { result = Peak().run(kRounds); });
  speed.multiply_adds = static_cast<double>(kRounds) * Peak().multiply_adds / work;
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

bool HasFastBf16Products() {
  static const bool is_fast = HasAvx512Bf16() && Bf16OverF32() > kClearly;
  return is_fast;
}

const MachineSpeed& MachineSpeed::Get() {
  static const MachineSpeed speed = Measured();
  return speed;
}

}  // namespace hlo_dispatch
