// Choice between ordinary stores and streaming (non-temporal) stores for a copy that other threads will read.
//
// Ordinary stores are the faster where all cores share a cache, unless the copy is large. Where they do not, lines
// that another core has read are slow to take back from it. A virtual machine may be either, and change while a
// process runs, as its processors are moved about (Zen 5, two virtual processors: a line goes to the other one and
// back in 0.1 or in 0.4 us; a transposed convolution with 1 MB of weights takes 30 us less with ordinary stores in the
// one state, and 70 us more in the other). So the copies themselves are timed.
#ifndef HLO_DISPATCH_ONEDNN_STORE_CHOICE_H_
#define HLO_DISPATCH_ONEDNN_STORE_CHOICE_H_

#include <atomic>
#include <cstdint>

namespace hlo_dispatch::onednn {

enum class StoreKind { kOrdinary = 0, kStreaming = 1 };

// Of one copy that is made again and again. May be used by several threads at once; then some times are lost.
class StoreChoice {
 public:
  struct Turn {
    StoreKind kind;
    bool counts;  // whether its time says something: not just after the kind has changed
  };

  // For the next copy, of so many bytes.
  Turn Next(int64_t bytes);

  void Took(Turn turn, double seconds);

 private:
  std::atomic<uint32_t> turns_{0};
  std::atomic<StoreKind> preferred_{StoreKind::kStreaming};
  std::atomic<double> seconds_[2] = {0.0, 0.0};  // by kind, 0 before the first
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_STORE_CHOICE_H_
