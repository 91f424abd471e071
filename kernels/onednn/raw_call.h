// A primitive run without XLA around it.
#ifndef HLO_DISPATCH_ONEDNN_RAW_CALL_H_
#define HLO_DISPATCH_ONEDNN_RAW_CALL_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/raw_call.h"
#include "onednn/primitive.h"

namespace hlo_dispatch::onednn {

class RawPrimitive final : public RawCall {
 public:
  // Builds the primitive. The buffers, of its operands and then of its result, must outlive this. An operand without
  // one (null, or beyond the last) gets memory of its own, with numbers whose size is between a half and one, both
  // signs; so does the result. Throws if a size is wrong.
  RawPrimitive(CallPlan plan, const std::vector<OperandBuffer>& given);

  void Run(int64_t count) override;

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Bytes = std::unique_ptr<void, Free>;
  static Bytes Allocate(int64_t bytes);

  Primitive primitive_;
  std::vector<Bytes> own_;
  std::vector<void*> operands_;
  void* destination_;
  Bytes scratch_;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_RAW_CALL_H_
