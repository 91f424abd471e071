#include "quantized_matmul/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "common/checked.h"
#include "common/failure.h"
#include "quantized_matmul/arithmetic.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

constexpr int64_t kMaxBytesEach = 4;
// Of unsigned numbers of four bits, which are read as signed ones.
constexpr float kUnsignedZero = 8;
// The sum of so many products of two numbers of eight bits is one of 32 bits.
constexpr int64_t kMaxSourceGroup = 1 << 16;
constexpr int64_t kMaxPerDimension = std::numeric_limits<int>::max();
// Whose epilogue it is, in messages; operands of two bytes are widened for it.
constexpr EpilogueOwner kOwner{"own.narrow_product", /*widens=*/true};

WeightsType ReadType(const std::string& name) {
  if (name == "s4") return WeightsType::kS4;
  if (name == "s8") return WeightsType::kS8;
  if (name == "bf16") return WeightsType::kBF16;
  if (name == "f32") return WeightsType::kF32;
  if (name == "f16") Unsupported("weights: expected s4, s8, bf16 or f32, got f16");
  Invalid("attribute 'weights_type': expected s4, s8, bf16 or f32, got '" + name + "'");
}

xla::ffi::DataType BufferType(const Weights& weights) {
  if (weights.block > 0) return xla::ffi::U8;
  const WeightsType type = weights.type;
  if (type == WeightsType::kS4) return xla::ffi::S4;
  if (type == WeightsType::kS8) return xla::ffi::S8;
  return type == WeightsType::kBF16 ? xla::ffi::BF16 : xla::ffi::F32;
}

// What XLA says that a buffer has, which counts a byte for each number of four bits.
int64_t DeclaredBytes(const Weights& weights) {
  return weights.type == WeightsType::kS4 && weights.block == 0 ? weights.elements
                                                                : WeightBytes(weights.type, weights.elements);
}

// Throws where weights of four bits do not begin where a byte does.
void CheckPairs(const Weights& weights) {
  if (weights.type != WeightsType::kS4) return;
  const int64_t contiguous = weights.has_contiguous_columns ? weights.columns : weights.depth;
  if (contiguous % 2 == 0 && weights.distance % 2 == 0 && weights.offset % 2 == 0 && weights.elements % 2 == 0) return;
  Unsupported("weights: expected s4 in rows or columns of an even number, each beginning with a byte");
}

// Of bytes with two numbers each; 0: they are numbers themselves.
int64_t ReadBlock(const Attributes& attributes) {
  if (!attributes.Has("weights_block")) return 0;
  const int64_t block = attributes.Integer("weights_block");
  if (block < 2 || block % 2 != 0) {
    Invalid("attribute 'weights_block': expected an even number, at least 2, got " + std::to_string(block));
  }
  if (attributes.Text("weights_type") != "u8") {
    Invalid("attribute 'weights_block': expected weights of u8, got " + attributes.Text("weights_type"));
  }
  return block;
}

// Throws unless blocks lie one behind the other along what is contiguous, and are what is summed up if they are larger
// than a byte.
void CheckBlocks(const Weights& weights) {
  if (weights.block <= 2) return;
  if (!weights.has_contiguous_columns && weights.depth % weights.block == 0) return;
  Unsupported("weights: expected blocks of " + std::to_string(weights.block) + " along what is summed up");
}

Weights ReadWeights(const Attributes& attributes) {
  const int64_t block = ReadBlock(attributes);
  const WeightsType type = block > 0 ? WeightsType::kS4 : ReadType(attributes.Text("weights_type"));
  if (attributes.Has("weights_reversed") && attributes.Integer("weights_reversed") != 0) {
    Invalid("attribute 'weights_reversed': expected weights with spatial dimensions");
  }
  const std::vector<int64_t> dims = attributes.Integers("weights_dims");
  const std::vector<int64_t> strides = attributes.Integers("weights_strides");
  if (dims.size() < 2 || strides.size() != dims.size()) {
    Invalid("weights: expected at least 2 dimensions and a stride for each, got " + std::to_string(dims.size()) +
            " and " + std::to_string(strides.size()));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 1) Invalid("weights: expected dimensions >= 1, got " + std::to_string(dims[i]));
    if (strides[i] < 1) Invalid("weights: expected strides >= 1, got " + std::to_string(strides[i]));
    if (i + 2 < dims.size() && dims[i] != 1) Unsupported("weights: expected one matrix for all products");
    if (dims[i] > kMaxPerDimension) {
      Unsupported("weights: expected dimensions of at most " + std::to_string(kMaxPerDimension) + ", got " +
                  std::to_string(dims[i]));
    }
  }
  const int64_t extent = Extent(dims, strides, "weights");
  Bytes(extent, kMaxBytesEach, "weights");
  CheckApart(dims, strides, "weights");
  Weights weights{type, dims[dims.size() - 2], dims.back(), false, 0, 0, extent, block};
  if (attributes.Has("weights_elements") || attributes.Has("weights_offset")) {
    weights.offset = attributes.Integer("weights_offset");
    weights.elements = attributes.Integer("weights_elements");
    if (weights.offset < 0 || weights.elements < 1 || extent > weights.elements - weights.offset) {
      Invalid("weights: expected " + std::to_string(extent) + " elements behind offset " +
              std::to_string(weights.offset) + ", got a buffer of " + std::to_string(weights.elements));
    }
    Bytes(weights.elements, kMaxBytesEach, "weights");
  } else {
    CheckDense(dims, strides, "weights");
  }
  const int64_t row_stride = strides[dims.size() - 2], column_stride = strides.back();
  weights.has_contiguous_columns = column_stride == 1 || weights.columns == 1;
  // A vector of one column, or one row, is read along what it has.
  if (weights.columns == 1 && row_stride == 1) weights.has_contiguous_columns = false;
  if (!weights.has_contiguous_columns && row_stride != 1 && weights.depth != 1) {
    Unsupported("weights: expected rows or columns whose elements lie side by side");
  }
  weights.distance = weights.has_contiguous_columns ? row_stride : column_stride;
  // Nothing is reached along one element, but addresses are computed with its stride.
  if ((weights.has_contiguous_columns ? weights.depth : weights.columns) == 1) weights.distance = 0;
  CheckPairs(weights);
  CheckBlocks(weights);
  return weights;
}

std::optional<Scales> ReadScales(const Attributes& attributes, const Weights& weights) {
  if (!attributes.Has("scales_type")) return std::nullopt;
  StridedArray array = ReadArray(attributes, "scales");
  const RowsAndColumns matrix = RowsAndColumns::Of(array, array.dims);
  if (matrix.columns != weights.columns || weights.depth % matrix.rows != 0) {
    Invalid("scales: expected one for each of " + std::to_string(weights.columns) +
            " columns and each of some groups of " + std::to_string(weights.depth) + " rows, got " +
            std::to_string(matrix.rows) + " times " + std::to_string(matrix.columns));
  }
  const int64_t group = weights.depth / matrix.rows;
  if (group % kGroupGrain != 0) {
    Unsupported("scales: expected groups of a multiple of " + std::to_string(kGroupGrain) + " rows, got " +
                std::to_string(group));
  }
  if (weights.type != WeightsType::kS4 && weights.type != WeightsType::kS8) {
    Unsupported("scales: expected weights of s4 or s8 where groups of them have scales");
  }
  if (weights.block > 2 && group % weights.block != 0) {
    Unsupported("scales: expected groups of whole blocks of weights");
  }
  return Scales{std::move(array), matrix, group};
}

float ReadZero(const Attributes& attributes) {
  const float zero = attributes.Real("weights_zero");
  if (!std::isfinite(zero)) {
    Invalid("attribute 'weights_zero': expected a finite number, got " + std::to_string(zero));
  }
  return zero;
}

std::optional<Zeros> ReadZeros(const Attributes& attributes, const Weights& weights,
                               const std::optional<Scales>& scales) {
  Zeros zeros{weights.block > 0 ? -kUnsignedZero : 0.0f, std::nullopt, {}, 1};
  if (attributes.Has("weights_zero")) zeros.constant += ReadZero(attributes);
  if (scales.has_value()) zeros.groups = scales->matrix.rows;
  if (attributes.Has("zeros_type")) {
    zeros.array = ReadArray(attributes, "zeros");
    std::vector<int64_t> dims = zeros.array->dims;
    if (dims.size() < 2) Invalid("zeros: expected at least 2 dimensions, got 1");
    int64_t& groups = dims[dims.size() - 2];
    if (!scales.has_value()) zeros.groups = groups;
    if ((groups != 1 && groups != zeros.groups) || (dims.back() != 1 && dims.back() != weights.columns) ||
        weights.depth % zeros.groups != 0) {
      Invalid("zeros: expected one for each of " + std::to_string(weights.columns) +
              " columns and each of some groups");
    }
    groups = zeros.groups;
    dims.back() = weights.columns;
    zeros.matrix = RowsAndColumns::Of(*zeros.array, dims);
    if (zeros.matrix.rows != zeros.groups) Invalid("zeros: expected one matrix for all products");
  } else if (zeros.constant == 0.0f) {
    return std::nullopt;
  }
  if (weights.type != WeightsType::kS4 && weights.type != WeightsType::kS8) {
    Unsupported("zeros: expected weights of s4, s8 or u8");
  }
  if (weights.block > 2 && weights.depth / zeros.groups % weights.block != 0) {
    Unsupported("zeros: expected groups of whole blocks of weights");
  }
  return zeros;
}

bool ReadMayBePrepacked(const Attributes& attributes) {
  const std::string format = attributes.Has("weights_format") ? attributes.Text("weights_format") : "best";
  if (format == "plain" || format == "any" || format == "best" || format == "packed") return format == "packed";
  Invalid("attribute 'weights_format': expected plain, any, best or packed, got '" + format + "'");
}

// What is rounded to eight bits with one scale; 0: the source is not rounded.
int64_t ReadSourceGroup(const Attributes& attributes, const Weights& weights, const std::optional<Scales>& scales,
                        const std::optional<Zeros>& zeros) {
  if (!attributes.Has("src_group")) return 0;
  const int64_t group = attributes.Integer("src_group");
  if (group < 1 || weights.depth % group != 0) {
    Invalid("attribute 'src_group': expected a divisor of " + std::to_string(weights.depth) + ", got " +
            std::to_string(group));
  }
  if (group > kMaxSourceGroup) {
    Unsupported("src: expected groups of at most " + std::to_string(kMaxSourceGroup) + " numbers, got " +
                std::to_string(group));
  }
  if (weights.type != WeightsType::kS4 && weights.type != WeightsType::kS8) {
    Unsupported("src: expected weights of s4 or s8 where it is rounded to eight bits");
  }
  if (weights.block > 0) Unsupported("src: expected weights that are not packed where it is rounded to eight bits");
  if (zeros.has_value()) Unsupported("src: expected weights without zero points where it is rounded to eight bits");
  if (scales.has_value() && scales->group % group != 0) {
    Unsupported("scales: expected groups of a multiple of the " + std::to_string(group) +
                " numbers of the source that have one scale, got " + std::to_string(scales->group));
  }
  return group;
}

// The source itself; throws unless the three are one product.
StridedArray CheckSingleProduct(StridedArray source, const StridedArray& destination, const Attributes& attributes) {
  const std::vector<int64_t> weights = attributes.Integers("weights_dims");
  const size_t rank = destination.dims.size();
  if (rank < 2 || source.dims.size() != rank || weights.size() != rank) {
    Invalid("src, weights and dst: expected as many dimensions in all, at least 2, got " +
            std::to_string(source.dims.size()) + ", " + std::to_string(weights.size()) + " and " +
            std::to_string(rank));
  }
  if (destination.elements > 0) Invalid("dst: expected a whole buffer, got a part of one");
  for (size_t i = 0; i + 1 < rank; ++i) {
    if (source.dims[i] != destination.dims[i]) Invalid("src and dst: their sizes do not fit");
  }
  if (source.dims[rank - 1] != weights[rank - 2] || weights[rank - 1] != destination.dims[rank - 1]) {
    Invalid("src, weights and dst: their sizes do not fit");
  }
  return source;
}

}  // namespace

int64_t WeightBytes(WeightsType type, int64_t count) {
  if (type == WeightsType::kS4) return count / 2;
  return type == WeightsType::kS8 ? count : type == WeightsType::kBF16 ? 2 * count : 4 * count;
}

Problem::Problem(const Provider& provider, const Attributes& attributes)
    : source_array(ReadArray(attributes, "src")),
      destination_array(ReadArray(attributes, "dst")),
      source(RowsAndColumns::Of(CheckSingleProduct(source_array, destination_array, attributes), source_array.dims)),
      destination(RowsAndColumns::Of(destination_array, destination_array.dims)),
      weights(ReadWeights(attributes)),
      scales(ReadScales(attributes, weights)),
      zeros(ReadZeros(attributes, weights, scales)),
      source_group(ReadSourceGroup(attributes, weights, scales, zeros)),
      epilogue(provider, attributes, destination_array, kOwner),
      may_be_prepacked(ReadMayBePrepacked(attributes)) {
  if (destination.rows > kMaxRows && !has_integer_weights()) {
    Unsupported("dst: expected at most " + std::to_string(kMaxRows) + " rows of products with f32 or bf16, got " +
                std::to_string(destination.rows) + "; with more of them other kernels are faster");
  }
}

std::vector<BufferSpec> Problem::operands(int64_t packed_bytes) const {
  std::vector<BufferSpec> specs{SpecOf(source_array)};
  if (packed_bytes > 0) {
    specs.push_back({"weights", xla::ffi::U8, packed_bytes});
  } else {
    specs.push_back({"weights", BufferType(weights), DeclaredBytes(weights)});
  }
  if (scales.has_value()) specs.push_back(SpecOf(scales->array));
  if (zeros.has_value() && zeros->array.has_value()) specs.push_back(SpecOf(*zeros->array));
  for (const StridedArray& operand : epilogue.operands()) specs.push_back(SpecOf(operand));
  return specs;
}

BufferSpec Problem::result() const { return SpecOf(destination_array); }

bool Problem::sums_in_place() const { return destination_array.type == ElementType::kF32 && destination.is_by_row(); }

}  // namespace hlo_dispatch::quantized_matmul
