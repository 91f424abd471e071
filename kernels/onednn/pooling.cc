// hlo_dispatch.onednn.pooling
//
//   dst[n, c, x] = post_ops( max (or average) over k of src[n, c, x * strides + k * (dilations + 1) - padding_low] )
//
// in one, two or three spatial dimensions. A maximum does not see the padding; to an average it is zeros that count.
// Operands: src, one per binary post-op. Results: dst, scratch.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"
#include "onednn/window.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", nullptr, "dst"};

size_t SpatialDimensions(const Attributes& attributes) {
  const size_t source = attributes.Integers("src_dims").size(), destination = attributes.Integers("dst_dims").size();
  if (source < 3 || source > 5) {
    Invalid("src: expected 3 to 5 dimensions (batch, channels, 1 to 3 spatial), got " + std::to_string(source));
  }
  if (destination != source) {
    Invalid("dst: expected as many dimensions as src (" + std::to_string(source) + "), got " +
            std::to_string(destination));
  }
  return source - 2;
}

Algorithm ReadAlgorithm(const Attributes& attributes) {
  const std::string name = attributes.Text("algorithm");
  if (name == "max") return kPoolingMax;
  if (name == "average") return kPoolingAverageIncludingPadding;
  Invalid("attribute 'algorithm': expected max or average, got '" + name + "'");
}

// With channels-first layouts oneDNN's pooling transposes to channels-last, but not an operand of the result's own
// size: 3.13 reads that one beyond its end.
void CheckPostOps(const CallOperands& operands) {
  const Tensor& destination = operands.destination;
  if (destination.strides[1] == 1 || destination.dims[1] == 1) return;
  for (const auto& [index, operand] : operands.chain.operands) {
    if (operand.dims != destination.dims) continue;
    Unsupported(operand.role +
                ": oneDNN's pooling takes an operand of the result's size only where channels are innermost");
  }
}

CallPlan Plan(const Attributes& attributes) {
  const Library& library = Library::Get();
  const size_t spatial = SpatialDimensions(attributes);
  Window window = ReadWindow(attributes, spatial);
  std::vector<int64_t> sizes = ReadIntegers(attributes, "window", spatial);
  const bool one_dimensional = spatial == 1;
  if (one_dimensional) {
    window = WithUnitDimension(std::move(window));
    sizes.insert(sizes.begin(), 1);
  }
  const CallOperands operands = CallOperands::Read(attributes, kRoles, /*add_unit_dimension=*/one_dimensional);
  CheckPostOps(operands);
  CheckWindow(window, sizes, /*from=*/operands.source, /*to=*/operands.destination);
  return MakePlan(
      operands,
      Choose("choosing a pooling", library.functions().pooling_forward_primitive_desc_create, library.engine(),
             kForwardInference, ReadAlgorithm(attributes), operands.source.Describe().get(),
             operands.destination.Describe().get(), window.strides.data(), sizes.data(), window.dilations.data(),
             window.padding_low.data(), window.padding_high.data(), MakePrimitiveAttributes(operands.chain).get()));
}

const Family<PlannedCall<Plan>, kOneDnn> family("pooling", {{}, "", kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::onednn
