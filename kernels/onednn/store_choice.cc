#include "onednn/store_choice.h"

#include <algorithm>

namespace hlo_dispatch::onednn {

namespace {

// The first turns of each round try the kind that is not preferred.
constexpr uint32_t kRound = 64;
constexpr uint32_t kTrials = 2;

// More than this would push too much else out of the caches, which the copy's own time does not show.
constexpr int64_t kMaxOrdinaryBytes = int64_t{8} << 20;

constexpr double kClearly = 0.9;     // of the preferred kind's time; less of a difference changes nothing
constexpr double kNewWeight = 0.25;  // of the latest time in the average
constexpr double kMaxOfOne = 2.0;    // times the average: the thread was preempted

StoreKind Other(StoreKind kind) { return kind == StoreKind::kOrdinary ? StoreKind::kStreaming : StoreKind::kOrdinary; }

int Index(StoreKind kind) { return static_cast<int>(kind); }

}  // namespace

StoreChoice::Turn StoreChoice::Next(int64_t bytes) {
  if (bytes > kMaxOrdinaryBytes) return {StoreKind::kStreaming, false};
  const uint32_t turn = turns_.fetch_add(1, std::memory_order_relaxed) % kRound;
  const StoreKind preferred = preferred_.load(std::memory_order_relaxed);
  return {turn < kTrials ? Other(preferred) : preferred, turn != 0 && turn != kTrials};
}

void StoreChoice::Took(Turn turn, double seconds) {
  if (!turn.counts) return;
  const StoreKind preferred = preferred_.load(std::memory_order_relaxed);
  std::atomic<double>& known = seconds_[Index(turn.kind)];
  const double before = known.load(std::memory_order_relaxed);
  // What a trial said a round ago may have been another state of the machine.
  const bool average = turn.kind == preferred && before > 0.0;
  const double now = average ? before + kNewWeight * (std::min(seconds, kMaxOfOne * before) - before) : seconds;
  known.store(now, std::memory_order_relaxed);
  const double best = seconds_[Index(preferred)].load(std::memory_order_relaxed);
  const double other = seconds_[Index(Other(preferred))].load(std::memory_order_relaxed);
  if (other > 0.0 && best > 0.0 && other < kClearly * best) {
    preferred_.store(Other(preferred), std::memory_order_relaxed);
  }
}

}  // namespace hlo_dispatch::onednn
