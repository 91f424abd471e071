// Raw call: a kernel call without XLA, for benchmarks.
#ifndef HLO_DISPATCH_COMMON_RAW_CALL_H_
#define HLO_DISPATCH_COMMON_RAW_CALL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/attributes.h"

namespace hlo_dispatch {

class RawCall {
 public:
  // An operand's buffer, as a custom-call gets it.
  struct OperandBuffer {
    void* address;
    int64_t bytes;
  };

  virtual ~RawCall() = default;
  // Runs `count` times, waiting for each.
  virtual void Run(int64_t count) = 0;
};

using RawCallMaker = std::unique_ptr<RawCall> (*)(const Attributes&, const std::vector<RawCall::OperandBuffer>&);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_RAW_CALL_H_
