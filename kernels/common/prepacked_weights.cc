#include "common/prepacked_weights.h"

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

std::string Said(int64_t bytes, const std::string& layout) { return std::to_string(bytes) + " bytes '" + layout + "'"; }

}  // namespace

void PackedWeights::Check(const Attributes& attributes, const std::string& implementation) const {
  const int64_t given_bytes = attributes.Integer("packed_bytes");
  const std::string given_layout = attributes.Text("packed_layout");
  if (given_bytes == bytes && given_layout == layout) return;
  throw Failure(FailureKind::kUnavailable,
                "weights: expected " + (bytes == 0 ? "ones that are not packed" : Said(bytes, layout)) +
                    ", which is what " + implementation + " reads here, got packed ones of " +
                    Said(given_bytes, given_layout) + "; prepare them again on this machine");
}

}  // namespace hlo_dispatch
