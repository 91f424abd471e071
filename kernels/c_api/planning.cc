// C API of kernel support queries, and of raw calls without XLA.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api/attributes.h"
#include "c_api/error.h"
#include "common/raw_call.h"
#include "common/registry.h"
#include "common/support_query.h"
#include "hlo_dispatch/kernels.h"

using hlo_dispatch::Answer;
using hlo_dispatch::Kernel;
using hlo_dispatch::KernelOf;
using hlo_dispatch::RawCall;
using hlo_dispatch::StoredAttributes;
using hlo_dispatch::SupportQueries;
using hlo_dispatch::host::Guarded;

struct hlo_dispatch_raw_call {
  std::unique_ptr<RawCall> call;
};

namespace {

// What the caller sees, and the texts that it points to.
struct OwnedAnswer {
  hlo_dispatch_answer seen;
  Answer answer;
};

hlo_dispatch_answer* ToCAnswer(Answer answer) {
  auto owned = std::make_unique<OwnedAnswer>();
  owned->answer = std::move(answer);
  const Answer& kept = owned->answer;
  owned->seen = {kept.implementation.c_str(), kept.scratch_bytes, kept.reorders ? 1 : 0, kept.packed_bytes,
                 kept.packed_layout.c_str()};
  return &owned.release()->seen;
}

}  // namespace

hlo_dispatch_error* hlo_dispatch_plan(const char* target, const hlo_dispatch_attributes* attributes,
                                      hlo_dispatch_answer** answer) {
  return Guarded([&] { *answer = ToCAnswer(KernelOf(target).plan(attributes->stored)); });
}

hlo_dispatch_error* hlo_dispatch_ask(const char* target, const hlo_dispatch_attributes* attributes, int64_t* number) {
  return Guarded([&] {
    const Kernel& kernel = KernelOf(target);
    *number = SupportQueries::Get().Ask(kernel.plan, std::make_unique<StoredAttributes>(attributes->stored));
  });
}

hlo_dispatch_error* hlo_dispatch_wait(int64_t number, hlo_dispatch_answer** answer) {
  return Guarded([&] { *answer = ToCAnswer(SupportQueries::Get().Wait(number)); });
}

// The first member's address is the whole one's.
void hlo_dispatch_answer_free(hlo_dispatch_answer* answer) { delete reinterpret_cast<OwnedAnswer*>(answer); }

void hlo_dispatch_finish() { SupportQueries::Get().Finish(); }

hlo_dispatch_error* hlo_dispatch_raw_call_new(const char* target, const hlo_dispatch_attributes* attributes,
                                              void* const* addresses, const int64_t* bytes, size_t count,
                                              hlo_dispatch_raw_call** call) {
  return Guarded([&] {
    const Kernel& kernel = KernelOf(target);
    if (kernel.raw_call == nullptr) hlo_dispatch::Unsupported(kernel.name + " is called by XLA only");
    std::vector<RawCall::OperandBuffer> given;
    for (size_t i = 0; i < count; ++i) given.push_back({addresses[i], bytes[i]});
    *call = new hlo_dispatch_raw_call{kernel.raw_call(attributes->stored, given)};
  });
}

hlo_dispatch_error* hlo_dispatch_raw_call_run(hlo_dispatch_raw_call* call, int64_t times) {
  return Guarded([&] { call->call->Run(times); });
}

void hlo_dispatch_raw_call_free(hlo_dispatch_raw_call* call) { delete call; }
