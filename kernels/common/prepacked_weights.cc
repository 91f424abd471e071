#include "common/prepacked_weights.h"

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

std::string InWords(int64_t bytes, const std::string& layout) {
  return std::to_string(bytes) + " bytes '" + layout + "'";
}

}  // namespace

void PrepackedWeights::Check(const Attributes& attributes, const std::string& implementation) const {
  const int64_t actual_bytes = attributes.Integer("packed_bytes");
  const std::string actual_layout = attributes.Text("packed_layout");
  if (actual_bytes == bytes && actual_layout == layout) return;
  Unavailable("weights: expected " + (bytes == 0 ? "ones that are not packed" : InWords(bytes, layout)) +
              ", which is what " + implementation + " reads here, got packed ones of " +
              InWords(actual_bytes, actual_layout) + "; prepare them again on this machine");
}

}  // namespace hlo_dispatch
