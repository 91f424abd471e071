// Discrete Fourier transforms over the last one to three dimensions, as HLO's fft has them: forward unscaled,
// backward divided by the number of elements; a real transform keeps half of its last dimension and one more.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/provider.h"
#include "common/scalar.h"
#include "onemkl/dfti.h"

namespace hlo_dispatch::onemkl {

namespace {

// HLO's FftType.
enum Kind { kFft = 0, kInverse = 1, kReal = 2, kInverseReal = 3 };

// Below so many elements a second thread is not worth waking.
constexpr int64_t kParallelElements = 1 << 15;
// oneMKL computes a table of this length when a descriptor is committed, before there is a buffer: 25 s for 2^30.
constexpr int64_t kMaxLength = 1 << 24;

struct BatchDimension {
  int64_t size;
  int64_t source_stride;
  int64_t destination_stride;
};

struct Tensor {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

Tensor TensorFromAttributes(const Attributes& attributes, const std::string& role, size_t rank) {
  Tensor tensor{attributes.Integers(role + "_dims"), attributes.Integers(role + "_strides")};
  bool fits = tensor.dims.size() == tensor.strides.size() && tensor.dims.size() >= rank;
  for (int64_t size : tensor.dims) fits = fits && size > 0;
  for (int64_t stride : tensor.strides) fits = fits && stride >= 0;
  const std::string what = "attributes '" + role + "_dims' and '" + role + "_strides'";
  if (!fits) Invalid(what + ": expected as many of each, of no empty array, at least " + std::to_string(rank));
  CheckDense(tensor.dims, tensor.strides, what);
  return tensor;
}

BufferSpec SpecOf(const std::string& role, const Tensor& tensor, xla::ffi::DataType type, int64_t bytes) {
  return {role, type, Bytes(Elements(tensor.dims, role), bytes, role)};
}

DftiFunctions Functions(const Provider& provider) {
  DftiFunctions found{};
  found.create = provider.Symbol<decltype(found.create)>("DftiCreateDescriptor");
  found.set_value = provider.Symbol<decltype(found.set_value)>("DftiSetValue");
  found.commit = provider.Symbol<decltype(found.commit)>("DftiCommitDescriptor");
  found.forward = provider.Symbol<decltype(found.forward)>("DftiComputeForward");
  found.backward = provider.Symbol<decltype(found.backward)>("DftiComputeBackward");
  found.destroy = provider.Symbol<decltype(found.destroy)>("DftiFreeDescriptor");
  found.message = provider.Symbol<decltype(found.message)>("DftiErrorMessage");
  return found;
}

struct Destroy {
  DftiLong (*function)(DftiDescriptor**);
  void operator()(DftiDescriptor* descriptor) const { function(&descriptor); }
};

// One committed descriptor and what it is applied to. It is only read afterwards: any number of threads may compute.
class Transform {
 public:
  Transform(const Provider& provider, Kind kind, const Tensor& source, const Tensor& destination, size_t rank,
            const Scalar& scalar)
      : provider_(provider), functions_(Functions(provider)), kind_(kind) {
    source_bytes_ = kind == kReal ? scalar.real_bytes() : 2 * scalar.real_bytes();
    destination_bytes_ = kind == kInverseReal ? scalar.real_bytes() : 2 * scalar.real_bytes();
    SplitBatch(source, destination, source.dims.size() - rank);
    Describe(source, destination, rank, scalar.real_bytes() == 4);
  }

  void Execute(const void* source, void* destination, const Parallel& parallel) const {
    int64_t count = 1;
    for (const BatchDimension& dimension : outer_) count *= dimension.size;
    parallel.For(count, std::max<int64_t>(1, count / (4 * parallel.threads())), [&](int64_t begin, int64_t end) {
      const ThreadLimit limit(provider_, count > 1 ? 1 : parallel.threads());
      for (int64_t i = begin; i < end; ++i) Compute(source, destination, i);
    });
  }

 private:
  // Batch dimensions that are contiguous in both arrays are merged; the largest remaining one goes to DFTI, the others
  // are walked here.
  void SplitBatch(const Tensor& source, const Tensor& destination, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (source.dims[i] != destination.dims[i]) Invalid("src and dst: their batch dimensions differ");
      if (source.dims[i] == 1) continue;
      const BatchDimension next{source.dims[i], source.strides[i], destination.strides[i]};
      if (!outer_.empty() && outer_.back().source_stride == next.size * next.source_stride &&
          outer_.back().destination_stride == next.size * next.destination_stride) {
        outer_.back() = {outer_.back().size * next.size, next.source_stride, next.destination_stride};
      } else {
        outer_.push_back(next);
      }
    }
    auto largest =
        std::max_element(outer_.begin(), outer_.end(), [](const auto& a, const auto& b) { return a.size < b.size; });
    if (largest == outer_.end()) return;
    transforms_ = *largest;
    outer_.erase(largest);
  }

  void Describe(const Tensor& source, const Tensor& destination, size_t rank, bool single) {
    const bool is_real = kind_ == kReal || kind_ == kInverseReal;
    const bool is_backward = kind_ == kInverse || kind_ == kInverseReal;
    const size_t first = source.dims.size() - rank;
    // The real array, where there is one, has the transform's own lengths.
    const Tensor& whole = kind_ == kInverseReal ? destination : source;
    std::vector<DftiLong> lengths;
    std::vector<DftiLong> source_strides{0};
    std::vector<DftiLong> destination_strides{0};
    double elements = 1;
    for (size_t i = first; i < source.dims.size(); ++i) {
      if (whole.dims[i] > kMaxLength) {
        Unsupported("src and dst: expected lengths of at most " + std::to_string(kMaxLength) + ", got " +
                    std::to_string(whole.dims[i]));
      }
      lengths.push_back(whole.dims[i]);
      source_strides.push_back(source.strides[i]);
      destination_strides.push_back(destination.strides[i]);
      elements *= static_cast<double>(whole.dims[i]);
      const int64_t half = whole.dims[i] / 2 + 1;
      const int64_t other = kind_ == kInverseReal ? source.dims[i] : destination.dims[i];
      const bool is_halved = is_real && i + 1 == source.dims.size();
      if (other != (is_halved ? half : whole.dims[i])) {
        Invalid("src and dst: their sizes are not those of one transform");
      }
    }
    const int precision = single ? kSinglePrecision : kDoublePrecision;
    const int domain = is_real ? kRealDomain : kComplexDomain;
    DftiDescriptor* created = nullptr;
    Check(rank == 1 ? functions_.create(&created, precision, domain, DftiLong{1}, lengths[0])
                    : functions_.create(&created, precision, domain, static_cast<DftiLong>(rank), lengths.data()));
    descriptor_ = {created, Destroy{functions_.destroy}};
    Set(kPlacement, kNotInPlace);
    if (is_real) Set(kConjugateEvenStorage, kComplexComplex);
    if (is_backward) Check(functions_.set_value(descriptor_.get(), kBackwardScale, 1.0 / elements));
    Set(kNumberOfTransforms, static_cast<DftiLong>(transforms_.size));
    Set(is_backward ? kBackwardStrides : kForwardStrides, source_strides.data());
    Set(is_backward ? kForwardStrides : kBackwardStrides, destination_strides.data());
    Set(is_backward ? kBackwardDistance : kForwardDistance, static_cast<DftiLong>(transforms_.source_stride));
    Set(is_backward ? kForwardDistance : kBackwardDistance, static_cast<DftiLong>(transforms_.destination_stride));
    if (elements * static_cast<double>(transforms_.size) < kParallelElements || !outer_.empty()) {
      Set(kThreadLimit, DftiLong{1});
    }
    Check(functions_.commit(descriptor_.get()));
  }

  void Compute(const void* from, void* to, int64_t index) const {
    int64_t source_offset = 0;
    int64_t destination_offset = 0;
    for (size_t i = outer_.size(); i-- > 0;) {
      const int64_t place = index % outer_[i].size;
      index /= outer_[i].size;
      source_offset += place * outer_[i].source_stride;
      destination_offset += place * outer_[i].destination_stride;
    }
    // DFTI reads its input through a plain pointer, and leaves it alone.
    void* source = static_cast<char*>(const_cast<void*>(from)) + source_offset * source_bytes_;
    void* destination = static_cast<char*>(to) + destination_offset * destination_bytes_;
    const bool is_backward = kind_ == kInverse || kind_ == kInverseReal;
    Check((is_backward ? functions_.backward : functions_.forward)(descriptor_.get(), source, destination));
  }

  template <typename Value>
  void Set(DftiParameter parameter, Value value) {
    Check(functions_.set_value(descriptor_.get(), parameter, value));
  }

  void Check(DftiLong status) const {
    if (status == 0) return;
    Unsupported("oneMKL " + provider_.version() + ": " + functions_.message(status));
  }

  const Provider& provider_;
  DftiFunctions functions_;
  std::unique_ptr<DftiDescriptor, Destroy> descriptor_{nullptr, Destroy{nullptr}};
  Kind kind_;
  BatchDimension transforms_{1, 0, 0};
  std::vector<BatchDimension> outer_;
  int64_t source_bytes_;
  int64_t destination_bytes_;
};

// The inverse of a real transform over several dimensions is defined one dimension after another. oneMKL's own takes
// the half spectrum for that of a real array, and answers differently where it is not.
class Fft final : public Routine {
 public:
  Fft(const Provider& provider, const Attributes& attributes) {
    const int64_t number = attributes.Integer("fft_type");
    const int64_t dimensions = attributes.Integer("rank");
    if (number < kFft || number > kInverseReal) Invalid("attribute 'fft_type': 0 to 3");
    if (dimensions < 1 || dimensions > 3) Unsupported("attribute 'rank': 1 to 3");
    const auto kind = static_cast<Kind>(number);
    const auto rank = static_cast<size_t>(dimensions);
    const Scalar scalar = ScalarFromAttributes(attributes);
    if (scalar.is_complex() != (kind != kReal)) Invalid("attribute 'type': does not fit the kind of transform");
    const Tensor source = TensorFromAttributes(attributes, "src", rank);
    const Tensor destination = TensorFromAttributes(attributes, "dst", rank);
    if (source.dims.size() != destination.dims.size()) Invalid("src and dst: expected as many dimensions of each");
    const auto complex_type = scalar.real_bytes() == 4 ? xla::ffi::C64 : xla::ffi::C128;
    const int64_t complex_bytes = 2 * scalar.real_bytes();
    operands_ = {kind == kReal ? SpecOf("src", source, scalar.real_type, scalar.real_bytes())
                               : SpecOf("src", source, complex_type, complex_bytes)};
    results_ = {kind == kInverseReal ? SpecOf("dst", destination, scalar.real_type, scalar.real_bytes())
                                     : SpecOf("dst", destination, complex_type, complex_bytes)};
    if (kind == kInverseReal && rank > 1) {
      const Tensor intermediate = Dense(source.dims);
      intermediate_bytes_ = operands_[0].bytes;  // as many elements of one type
      first_ = std::make_unique<Transform>(provider, kInverse, LastDimensionFirst(source, rank),
                                           LastDimensionFirst(intermediate, rank), rank - 1, scalar);
      last_ = std::make_unique<Transform>(provider, kind, intermediate, destination, 1, scalar);
    } else {
      last_ = std::make_unique<Transform>(provider, kind, source, destination, rank, scalar);
    }
    name_ = std::string("dfti:") + (kind == kReal ? "r2c" : kind == kInverseReal ? "c2r" : "c2c");
  }

  std::string implementation() const override { return name_; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (first_ == nullptr) return last_->Execute(buffers.operands[0], buffers.results[0], parallel);
    const std::unique_ptr<char[]> intermediate(new char[static_cast<size_t>(intermediate_bytes_)]);
    first_->Execute(buffers.operands[0], intermediate.get(), parallel);
    last_->Execute(intermediate.get(), buffers.results[0], parallel);
  }

 private:
  static Tensor Dense(const std::vector<int64_t>& dims) {
    Tensor tensor{dims, dims};
    int64_t stride = 1;
    for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) tensor.strides[i] = stride;
    return tensor;
  }

  // The last dimension becomes one of the batch, before the rank - 1 others of the transform.
  static Tensor LastDimensionFirst(Tensor tensor, size_t rank) {
    for (std::vector<int64_t>* numbers : {&tensor.dims, &tensor.strides}) {
      std::rotate(numbers->end() - static_cast<std::ptrdiff_t>(rank), numbers->end() - 1, numbers->end());
    }
    return tensor;
  }

  std::unique_ptr<Transform> first_;
  std::unique_ptr<Transform> last_;
  int64_t intermediate_bytes_ = 0;
  std::string name_;
};

const Family<Fft, kMkl> family("fft");

}  // namespace

}  // namespace hlo_dispatch::onemkl
