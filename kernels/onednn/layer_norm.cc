// hlo_dispatch.onednn.layer_norm
//
//   variance:    dst[..., j] = (src[..., j] - m) / sqrt(v + epsilon) * scale[j] + shift[j]
//   mean_square: dst[..., j] = src[..., j] / sqrt(q + epsilon) * scale[j] + shift[j]
//
// where m and v are the mean and the variance of the row, and q is the mean of its squares; attribute 'statistics' says
// which. Operands: src, scale where there is a scale_type, shift where there is a shift_type. Results: dst, scratch.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "common/element_type.h"
#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", nullptr, "dst", /*has_space=*/false};
constexpr unsigned kUseScale = 0x2, kUseShift = 0x4, kMeanSquare = 0x20;
constexpr int kArgumentScale = 51, kArgumentShift = 52;
constexpr double kMaxRelativeError = 1e-6;  // of a reciprocal that was rounded to f32, relatively

using CreateLayerNorm = Status(PrimitiveDescriptor**, Engine*, PropagationKind, const MemoryDescriptor*,
                               const MemoryDescriptor*, const MemoryDescriptor*, DataType, float, unsigned,
                               const PrimitiveAttributes*);

unsigned ReadStatistics(const Attributes& attributes) {
  const std::string name = attributes.Text("statistics");
  if (name == "variance") return 0;
  if (name == "mean_square") return kMeanSquare;
  Invalid("attribute 'statistics': expected variance or mean_square, got '" + name + "'");
}

float ReadEpsilon(const Attributes& attributes) {
  const float epsilon = attributes.Real("epsilon");
  if (std::isfinite(epsilon) && epsilon >= 0) return epsilon;
  Invalid("attribute 'epsilon': expected a number that is not negative, got " + std::to_string(epsilon));
}

// A program multiplies its sums by a number, which may be another one than that of a mean.
void CheckReciprocal(const Attributes& attributes, int64_t size) {
  if (!attributes.Has("reciprocal")) return;
  const float reciprocal = attributes.Real("reciprocal");
  if (std::abs(reciprocal * static_cast<double>(size) - 1) <= kMaxRelativeError) return;
  Unsupported("sums of " + std::to_string(size) + " values are multiplied by " + std::to_string(reciprocal) +
              ", which gives no mean");
}

// The operand of one value for each of the row's; nothing where the call has none.
std::optional<Tensor> ReadVector(const Attributes& attributes, const std::string& role, int64_t size) {
  const std::string type = role + "_type";
  if (!attributes.Has(type)) return std::nullopt;
  return Tensor{{role, ElementTypeFromName(attributes.Text(type), type), {size}, {1}}};
}

// oneDNN 3.13 accepts any order of the result, but writes a fixed one.
void CheckOrder(const Tensor& source, const Tensor& destination) {
  for (size_t i = 0; i < source.dims.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (source.dims[i] == 1 || source.dims[j] == 1) continue;
      if ((source.strides[i] < source.strides[j]) == (destination.strides[i] < destination.strides[j])) continue;
      Unsupported("dst: expected its dimensions in memory in the order of src's");
    }
  }
}

CallPlan Plan(const Attributes& attributes) {
  const Library& library = Library::Get();
  const CallOperands operands = CallOperands::Read(attributes, kRoles);
  const size_t rank = operands.source.dims.size();
  if (rank < 2) Invalid("src: expected at least 2 dimensions, got " + std::to_string(rank));
  if (operands.destination.dims != operands.source.dims) Invalid("dst: expected the dimensions of src");
  CheckOrder(operands.source, operands.destination);
  const int64_t size = operands.source.dims.back();
  CheckReciprocal(attributes, size);
  const std::optional<Tensor> scale = ReadVector(attributes, "scale", size);
  const std::optional<Tensor> shift = ReadVector(attributes, "shift", size);
  if (scale && shift && scale->type != shift->type) Unsupported("scale and shift: expected one element type");
  const ElementType type = scale ? scale->type : shift ? shift->type : ElementType::kF32;
  const unsigned flags = ReadStatistics(attributes) | (scale ? kUseScale : 0) | (shift ? kUseShift : 0);
  CallPlan plan = MakePlan(
      operands, Choose("choosing a layer normalization",
                       library.Function<CreateLayerNorm>("layer_normalization_forward_primitive_desc_create_v2"),
                       library.engine(), kForwardInference, operands.source.Describe().get(),
                       operands.destination.Describe().get(), nullptr, ToDataType(type), ReadEpsilon(attributes), flags,
                       MakePrimitiveAttributes(operands.chain).get()));
  // Ahead of what post-ops read.
  if (shift) plan.operands.insert(plan.operands.begin() + 1, Operand{*shift, kArgumentShift, {}, {}});
  if (scale) plan.operands.insert(plan.operands.begin() + 1, Operand{*scale, kArgumentScale, {}, {}});
  return plan;
}

const Family<PlannedCall<Plan>, kOneDnn> family("layer_norm", {{}, "", kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::onednn
