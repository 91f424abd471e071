#include "convolution/problem.h"

#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"

namespace hlo_dispatch::convolution {

namespace {

// Sums of some such numbers do not overflow, nor do products of two.
constexpr int64_t kMost = int64_t{1} << 24;

StridedArray Read(const Attributes& attributes, const std::string& role) {
  return ReadArray(attributes, role, Accepted::kSinglesAndDoubles);
}

void CheckNumber(const std::string& what, int64_t value, int64_t least) {
  if (least <= value && value <= kMost) return;
  Unsupported(what + ": expected " + std::to_string(least) + " to " + std::to_string(kMost) + ", got " +
              std::to_string(value));
}

void CheckEqual(const std::string& what, int64_t expected, int64_t got) {
  if (expected != got) Invalid(what + ": expected " + std::to_string(expected) + ", got " + std::to_string(got));
}

// The last `spatial` of these as three dimensions, the first of which may be missing.
Space LastOf(const std::vector<int64_t>& values, size_t spatial, int64_t missing) {
  Space space{missing, missing, missing};
  for (size_t i = 0; i < spatial; ++i) space[3 - spatial + i] = values[values.size() - spatial + i];
  return space;
}

std::vector<int64_t> ReadSpace(const Attributes& attributes, const std::string& name, size_t spatial, int64_t least) {
  std::vector<int64_t> values = attributes.Integers(name);
  if (values.size() != spatial) {
    Invalid("attribute '" + name + "': expected " + std::to_string(spatial) + " numbers, got " +
            std::to_string(values.size()));
  }
  for (int64_t value : values) CheckNumber("attribute '" + name + "'", value, least);
  return values;
}

void CheckPositions(const Problem& problem, const Space& behind) {
  for (size_t i = 0; i < 3; ++i) {
    for (int64_t size : {problem.source[i], problem.kernel[i], problem.result[i]}) CheckNumber("sizes", size, 1);
    const int64_t reach = (problem.kernel[i] - 1) * problem.dilations[i] + 1;
    CheckNumber("dilations", reach, 1);
    const int64_t room = problem.source[i] + problem.padding[i] + behind[i];
    const int64_t positions = room < reach ? 0 : (room - reach) / problem.strides[i] + 1;
    if (positions == problem.result[i]) continue;
    Unsupported("dst: expected " + std::to_string(positions) + " positions of the window, got " +
                std::to_string(problem.result[i]));
  }
}

}  // namespace

Problem::Problem(const Attributes& attributes)
    : source_array(Read(attributes, "src")),
      weights_array(Read(attributes, "weights")),
      destination_array(Read(attributes, "dst")) {
  const size_t rank = source_array.dims.size(), of_weights = weights_array.dims.size();
  if (rank < 3 || rank > 5) Invalid("src: expected 3 to 5 dimensions, got " + std::to_string(rank));
  CheckEqual("dimensions of dst", static_cast<int64_t>(rank), static_cast<int64_t>(destination_array.dims.size()));
  if (of_weights != rank && of_weights != rank + 1) {
    Invalid("weights: expected as many dimensions as src, or one more with groups, got " + std::to_string(of_weights));
  }
  for (const StridedArray* array : {&weights_array, &destination_array}) {
    if (array->type == source_array.type) continue;
    Unsupported(array->role + ": expected src's type " + ElementTypeName(source_array.type) + ", got " +
                ElementTypeName(array->type));
  }
  if (destination_array.elements > 0) Invalid("dst: expected a whole buffer, got a part of one");
  if (attributes.Has("bias_type") || attributes.Has("post_op_0")) {
    Unsupported("own.convolution has neither bias nor post-ops");
  }
  const size_t spatial = rank - 2, of_groups = of_weights - rank;
  const auto& weights_dims = weights_array.dims;
  const auto& weights_strides = weights_array.strides;
  images = source_array.dims[0];
  groups = of_groups > 0 ? weights_dims[0] : 1;
  outputs = weights_dims[of_groups];
  inputs = weights_dims[of_groups + 1];
  CheckEqual("images of dst", images, destination_array.dims[0]);
  CheckEqual("channels of src", Product(groups, inputs, "weights"), source_array.dims[1]);
  CheckEqual("channels of dst", Product(groups, outputs, "weights"), destination_array.dims[1]);
  source = LastOf(source_array.dims, spatial, 1);
  kernel = LastOf(weights_dims, spatial, 1);
  result = LastOf(destination_array.dims, spatial, 1);
  strides = LastOf(ReadSpace(attributes, "strides", spatial, 1), spatial, 1);
  dilations = LastOf(ReadSpace(attributes, "dilations", spatial, 0), spatial, 0);
  for (int64_t& dilation : dilations) ++dilation;
  padding = LastOf(ReadSpace(attributes, "padding_low", spatial, 0), spatial, 0);
  CheckPositions(*this, LastOf(ReadSpace(attributes, "padding_high", spatial, -kMost), spatial, 0));
  Product(Product(kernel[0], kernel[1], "weights"), kernel[2], "weights");
  source_image = source_array.strides[0];
  source_channel = source_array.strides[1];
  source_space = LastOf(source_array.strides, spatial, 0);
  result_image = destination_array.strides[0];
  result_channel = destination_array.strides[1];
  result_space = LastOf(destination_array.strides, spatial, 0);
  weights_group = of_groups > 0 ? weights_strides[0] : 0;
  weights_output = weights_strides[of_groups];
  weights_input = weights_strides[of_groups + 1];
  weights_space = LastOf(weights_strides, spatial, 0);
  is_reversed = attributes.Has("weights_reversed") && attributes.Integer("weights_reversed") != 0;
  const bool is_gain = is_depthwise() && (!has_channels_last() || dilations != Space{1, 1, 1});
  if (source_array.type == ElementType::kF32 && !is_gain) {
    Unsupported("src: expected f64, or a depthwise convolution with gaps in the window or in NCHW, got f32");
  }
}

double Problem::multiply_adds() const {
  double count = static_cast<double>(images) * static_cast<double>(groups * outputs) * static_cast<double>(inputs);
  for (size_t i = 0; i < 3; ++i) count *= static_cast<double>(result[i]) * static_cast<double>(kernel[i]);
  return count;
}

}  // namespace hlo_dispatch::convolution
