// hlo_dispatch.onemkl.gemm
//
//   dst[m, n] = post_ops( bias[n] + sum over k of src[m, k] * weights[k, n] )
//
// Operands, attributes and results are those of onednn.matmul, as far as gemm can express them: f32, and one product.
// Dimensions in front of the rows are rows, too. The threads are XLA's: each multiplies a part of the result by itself,
// and applies the epilogue to it while it is in its cache. oneMKL's own threads, over TBB, are slower on products of
// few rows.
#include "onemkl/gemm.h"

#include <unistd.h>

#include <algorithm>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/rounding.h"

namespace hlo_dispatch::onemkl {

namespace {

// So many multiply-adds, some ten microseconds, are worth waking a thread for.
constexpr int64_t kMinPerThread = 1 << 19;
constexpr int64_t kColumnGrain = 16;  // a line of the cache
constexpr int64_t kRowGrain = 8;
constexpr int64_t kMinRowsAtOnce = 64;  // weights that are not packed are packed by gemm for each of them
constexpr int64_t kCacheIfUnknown = 1 << 20;

StridedArray ReadSingle(const Attributes& attributes, const std::string& role) {
  StridedArray array = ReadArray(attributes, role);
  if (array.type != ElementType::kF32) {
    Unsupported(role + ": expected f32, which is all that oneMKL's gemm is given, got " + ElementTypeName(array.type));
  }
  return array;
}

// The destination itself; throws unless the three are one product.
StridedArray OfOneProduct(const StridedArray& source, const StridedArray& weights, StridedArray destination) {
  const size_t rank = destination.dims.size();
  for (const StridedArray* array : {&source, &weights}) {
    if (rank < 2 || array->dims.size() != rank) {
      Invalid(array->role + ": expected as many dimensions as dst (" + std::to_string(rank) + ") and at least 2, got " +
              std::to_string(array->dims.size()));
    }
  }
  if (destination.elements > 0) Invalid("dst: expected a whole buffer, got a part of one");
  const auto from_end = [rank](const StridedArray& array, size_t index) { return array.dims[rank - index]; };
  if (from_end(source, 2) != from_end(destination, 2) || from_end(source, 1) != from_end(weights, 2) ||
      from_end(weights, 1) != from_end(destination, 1)) {
    Invalid("src, weights and dst: their sizes do not fit");
  }
  for (size_t i = 0; i + 2 < rank; ++i) {
    const int64_t batch = destination.dims[i];
    for (const StridedArray* array : {&source, &weights}) {
      if (array->dims[i] != batch && array->dims[i] != 1) {
        Invalid(array->role + ": expected dst's " + std::to_string(batch) + " elements or 1 in dimension " +
                std::to_string(i) + ", got " + std::to_string(array->dims[i]));
      }
    }
    if (weights.dims[i] != 1) Unsupported("weights: expected one matrix for all products, which gemm multiplies with");
    if (source.dims[i] != batch) Unsupported("src: expected rows for each of dst's products");
  }
  return destination;
}

bool ReadMayBePrepacked(const Attributes& attributes) {
  if (attributes.Has("weights_reversed") && attributes.Integer("weights_reversed") != 0) {
    Invalid("attribute 'weights_reversed': expected weights with spatial dimensions");
  }
  const std::string format = attributes.Has("weights_format") ? attributes.Text("weights_format") : "best";
  if (format != "plain" && format != "any" && format != "best" && format != "packed") {
    Invalid("attribute 'weights_format': expected plain, any, best or packed, got '" + format + "'");
  }
  return format == "packed";
}

// Cache size of one thread. Queried once: CPUID is slow in a virtual machine.
int64_t CacheBytes(int64_t threads) {
  static const int64_t own = sysconf(_SC_LEVEL2_CACHE_SIZE);
  static const int64_t shared = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const int64_t known = std::max(own, shared / threads);
  return known > 0 ? known : kCacheIfUnknown;
}

int64_t Pieces(int64_t count, int64_t wanted, int64_t grain) {
  return std::max<int64_t>(1, std::min(wanted, CeilOfRatio(count, grain)));
}

int64_t Width(int64_t count, int64_t pieces, int64_t grain) { return RoundUpTo(CeilOfRatio(count, pieces), grain); }

}  // namespace

Gemm::Gemm(const Provider& provider, const Attributes& attributes)
    : provider_(provider),
      functions_(provider),
      source_array_(ReadSingle(attributes, "src")),
      weights_array_(ReadSingle(attributes, "weights")),
      destination_array_(OfOneProduct(source_array_, weights_array_, ReadSingle(attributes, "dst"))),
      epilogue_(provider, attributes, destination_array_),
      may_be_packed_(ReadMayBePrepacked(attributes)) {
  source_ = RowsAndColumns::Of(source_array_, source_array_.dims);
  weights_ = RowsAndColumns::Of(weights_array_, weights_array_.dims);
  destination_ = RowsAndColumns::Of(destination_array_, destination_array_.dims);
  by_row_ = destination_.goes_by_row();
  source_operand_ = GemmOperand::Of(source_, by_row_, "src");
  weights_operand_ = GemmOperand::Of(weights_, by_row_, "weights");
  destination_operand_ = GemmOperand::Of(destination_, by_row_, "dst");
  // oneMKL packs for results of the same order only; for the other one nothing is prepacked.
  if (may_be_packed_ && by_row_) panels_.emplace(provider_, functions_, destination_.rows, weights_);
  if (panels_.has_value() && !panels_->is_worth_its_memory()) panels_.reset();

  operands_ = {SpecOf(source_array_), SpecOf(weights_array_)};
  if (panels_.has_value()) operands_[1] = {"weights", xla::ffi::U8, panels_->prepacked().bytes};
  for (const StridedArray& operand : epilogue_.operands()) operands_.push_back(SpecOf(operand));
  results_ = {SpecOf(destination_array_), PlannedScratch(attributes)};
}

std::string Gemm::implementation() const { return panels_.has_value() ? "sgemm_compute" : "sgemm"; }

const PrepackedWeights* Gemm::prepacked() const {
  static const PrepackedWeights none;
  if (!may_be_packed_) return nullptr;
  return panels_.has_value() ? &panels_->prepacked() : &none;
}

int64_t Gemm::RowsAtOnce(int64_t columns, int64_t threads) const {
  if (epilogue_.is_empty()) return destination_.rows;
  const int64_t row_bytes = columns * static_cast<int64_t>(sizeof(float));
  return std::max(kMinRowsAtOnce, CacheBytes(threads) / 2 / row_bytes);
}

void Gemm::MultiplyTile(const float* source, const float* weights, float* values, const Tile& tile) const {
  const int m = static_cast<int>(tile.row_end - tile.row_begin);
  const int n = static_cast<int>(tile.column_end - tile.column_begin);
  const int k = static_cast<int>(source_.columns);
  const float* rows = source_.At(source, tile.row_begin, 0);
  float* to = values + tile.row_begin * destination_.row_stride + tile.column_begin * destination_.column_stride;
  if (panels_.has_value()) {
    functions_.compute(kRowMajor, source_operand_.transpose, kPacked, m, n, k, rows, source_operand_.leading, weights,
                       weights_operand_.leading, 0.0f, to, destination_operand_.leading);
    return;
  }
  functions_.gemm(by_row_ ? kRowMajor : kColumnMajor, source_operand_.transpose, weights_operand_.transpose, m, n, k,
                  1.0f, rows, source_operand_.leading, weights_.At(weights, 0, tile.column_begin),
                  weights_operand_.leading, 0.0f, to, destination_operand_.leading);
}

void Gemm::Execute(const RoutineBuffers& buffers, const Parallel& parallel) const {
  const auto begin = [](const StridedArray& array, const void* buffer) {
    return static_cast<const float*>(array.Begin(const_cast<void*>(buffer)));
  };
  const float* source = begin(source_array_, buffers.operands[0]);
  const float* weights = panels_.has_value() ? nullptr : begin(weights_array_, buffers.operands[1]);
  std::optional<PrepackedPanels::Reader> prepacked;
  if (panels_.has_value()) prepacked.emplace(*panels_, buffers.operands[1]);
  std::vector<const float*> others;
  for (size_t i = 0; i < epilogue_.operands().size(); ++i) {
    others.push_back(begin(epilogue_.operands()[i], buffers.operands[i + 2]));
  }
  auto* values = static_cast<float*>(buffers.results[0]);

  const int64_t rows = destination_.rows, columns = destination_.columns;
  const double work = static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(source_.columns);
  const int64_t threads = parallel.ThreadsFor(work, kMinPerThread);
  // What is shared out is what gemm need not pack more than once: each thread has its own part of the larger factor.
  const bool shares_columns = panels_.has_value() || rows <= columns;
  const int64_t across = panels_.has_value() ? panels_->count()
                         : shares_columns    ? Pieces(columns, threads, kColumnGrain)
                                             : 1;
  const int64_t down =
      shares_columns && !panels_.has_value() ? 1 : Pieces(rows, CeilOfRatio(threads, across), kRowGrain);
  const int64_t width = panels_.has_value() ? panels_->Begin(1) : Width(columns, across, kColumnGrain);
  const int64_t height = Width(rows, down, kRowGrain);
  const auto multiply = [&](int64_t piece) {
    const int64_t number = piece / down;
    const int64_t first = piece % down * height;
    Tile tile{first, first, std::min(number * width, columns), std::min((number + 1) * width, columns)};
    if (tile.column_begin == tile.column_end) return;
    const int64_t at_once = RowsAtOnce(tile.column_end - tile.column_begin, parallel.threads());
    for (const int64_t last = std::min(first + height, rows); tile.row_begin < last; tile.row_begin = tile.row_end) {
      tile.row_end = std::min(tile.row_begin + at_once, last);
      MultiplyTile(source, prepacked.has_value() ? prepacked->Panel(number) : weights, values, tile);
      if (!epilogue_.is_empty()) epilogue_.Apply(values, destination_, tile, others);
    }
  };
  parallel.For(across * down, CeilOfRatio(across * down, threads), [&](int64_t from, int64_t to) {
    const ThreadLimit limit(provider_, 1);
    for (int64_t i = from; i < to; ++i) multiply(i);
  });
}

namespace {

const Family<Gemm, kMkl> family("gemm", {{}, kPack});

}  // namespace

}  // namespace hlo_dispatch::onemkl
