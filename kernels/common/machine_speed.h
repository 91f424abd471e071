// Machine speed: throughput of one thread and the cost of waking another one, measured on first use, once in a process,
// in about a millisecond.
#ifndef HLO_DISPATCH_COMMON_MACHINE_SPEED_H_
#define HLO_DISPATCH_COMMON_MACHINE_SPEED_H_

#include <algorithm>

namespace hlo_dispatch {

struct MachineSpeed {
  double multiply_adds;  // of f32 in a second, from registers
  double bytes;          // copied in a second, within the caches
  double wake_up;        // seconds that waking another thread takes the one that wakes it

  // What one thread takes at least.
  double Seconds(double multiply_adds_done, double bytes_touched) const {
    return std::max(multiply_adds_done / multiply_adds, bytes_touched / bytes);
  }
  // Whether work of so many seconds on one thread is worth waking helpers for. The caller wakes a helper and notifies
  // it at the end; the helper takes about as long to start and to stop.
  bool RepaysHelp(double seconds) const { return seconds > 4 * wake_up; }

  // The best of several trials each, so that another process on the processor does not show.
  static const MachineSpeed& Get();
};

// Whether this processor multiplies bf16 clearly faster than f32: some have the instructions, but run a fraction of
// them at a time. Measured likewise, in a tenth of a millisecond.
bool HasFastBf16Products();

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_MACHINE_SPEED_H_
