// hlo_dispatch.own.bincount
//
//   dst[k] = how many entries e have indices[e] = k
//
// Operands: indices (E), s32, which may be a part of its buffer. Results: dst (N), f32, f64 or s32, and scratch. What
// is outside is left out; indices below 0 are, too ('below' = 0), count from the end (1) or are 0 (2). Each thread
// counts entries of its own.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/rounding.h"
#include "common/routine.h"

namespace hlo_dispatch::counting {

namespace {

// Entries, some fifty microseconds, that are worth waking a thread for.
constexpr double kMinPerThread = 1 << 17;
// Neighbours are often equal, and a number cannot be counted before the one ahead of it is: each of so many neighbours
// has counts of its own, as long as those fit into the first cache.
constexpr int64_t kApart = 4, kMaxApart = 1 << 11;
// A thread of its own takes as long for its counts as for so many entries.
constexpr int64_t kEntriesForEach = 2;

// What indices below 0 are.
enum class Below : int64_t { kOutside = 0, kFromEnd = 1, kFirst = 2 };

class BinCount final : public Routine {
 public:
  BinCount(const Provider&, const Attributes& attributes)
      : type_(ElementTypeFromName(attributes.Text("type"), "type", Accepted::kNumbers)) {
    if (type_ != ElementType::kF32 && type_ != ElementType::kF64 && type_ != ElementType::kS32) {
      Unsupported("attribute 'type': expected f32, f64 or s32");
    }
    indices_ = {"indices", ElementType::kS32, attributes.Integers("indices_dims"),
                attributes.Integers("indices_strides")};
    if (indices_.dims.size() != 1 || indices_.strides.size() != 1) Invalid("indices: expected one dimension");
    count_ = indices_.dims[0];
    indices_.offset = attributes.Integer("indices_offset");
    indices_.elements = attributes.Integer("indices_elements");
    if (count_ < 1 || indices_.strides[0] < 1 || indices_.offset < 0 || indices_.elements < 1) {
      Invalid("indices: expected elements, a stride, and an offset of at least 0");
    }
    Bytes(indices_.elements, ElementBytes(indices_.type), "indices");
    if (Extent(indices_.dims, indices_.strides, "indices") > indices_.elements - indices_.offset) {
      Invalid("indices: expected them within their buffer of " + std::to_string(indices_.elements) + " elements");
    }
    if (count_ > std::numeric_limits<int32_t>::max()) Unsupported("indices: expected as many as s32 can count");
    const int64_t below = attributes.Integer("below");
    if (below < 0 || below > 2) Invalid("attribute 'below': expected 0 to 2, got " + std::to_string(below));
    below_ = static_cast<Below>(below);
    const std::vector<int64_t> dims = attributes.Integers("dst_dims");
    if (dims.size() != 1 || dims[0] < 1 || attributes.Integers("dst_strides") != std::vector<int64_t>{1}) {
      Invalid("dst: expected one dimension, elements, and a stride of 1");
    }
    size_ = dims[0];
    if (size_ >= std::numeric_limits<int32_t>::max()) Unsupported("dst: expected places that s32 can hold");
    operands_ = {SpecOf(indices_)};
    results_ = {SpecOf({"dst", type_, dims, {1}}), PlannedScratch(attributes)};
  }

  std::string implementation() const override { return "bincount"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* indices = static_cast<const int32_t*>(indices_.Begin(const_cast<void*>(buffers.operands[0])));
    int64_t threads = parallel.ThreadsFor(static_cast<double>(count_), kMinPerThread);
    threads = std::clamp<int64_t>(count_ / (kEntriesForEach * size_), 1, threads);
    const int64_t apart = size_ <= kMaxApart ? kApart : 1, width = size_ + 1;
    // Behind the counts of each, what is outside.
    std::vector<uint32_t> counts(static_cast<size_t>(threads * apart * width));
    const int64_t piece = CeilOfRatio(count_, threads);
    parallel.For(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t thread = begin; thread < end; ++thread) {
        const int64_t first = std::min(count_, thread * piece), last = std::min(count_, first + piece);
        uint32_t* own = counts.data() + thread * apart * width;
        if (apart == 1) {
          Count<1>(indices, first, last, own);
        } else {
          Count<kApart>(indices, first, last, own);
        }
      }
    });
    switch (type_) {
      case ElementType::kF32:
        return Add<float>(counts, threads * apart, buffers.results[0]);
      case ElementType::kF64:
        return Add<double>(counts, threads * apart, buffers.results[0]);
      default:
        return Add<int32_t>(counts, threads * apart, buffers.results[0]);
    }
  }

 private:
  template <int64_t apart>
  void Count(const int32_t* indices, int64_t first, int64_t last, uint32_t* counts) const {
    const auto size = static_cast<uint32_t>(size_);
    const uint32_t added = below_ == Below::kFromEnd ? size : 0;
    const int32_t least = below_ == Below::kFirst ? 0 : std::numeric_limits<int32_t>::min();
    const int64_t width = size_ + 1, stride = indices_.strides[0];
    const auto count = [&](int64_t entry, uint32_t* of) {
      const int32_t index = std::max(indices[entry * stride], least);
      const uint32_t place = static_cast<uint32_t>(index) + (index < 0 ? added : 0);
      ++of[std::min(place, size)];
    };
    int64_t entry = first;
    for (; entry + apart <= last; entry += apart) {
      for (int64_t i = 0; i < apart; ++i) count(entry + i, counts + i * width);
    }
    for (; entry < last; ++entry) count(entry, counts);
  }

  template <typename T>
  void Add(const std::vector<uint32_t>& counts, int64_t parts, void* result) const {
    auto* to = static_cast<T*>(result);
    for (int64_t k = 0; k < size_; ++k) {
      uint32_t total = 0;
      for (int64_t part = 0; part < parts; ++part) total += counts[static_cast<size_t>(part * (size_ + 1) + k)];
      to[k] = static_cast<T>(total);
    }
  }

  ElementType type_;
  StridedArray indices_;
  Below below_ = Below::kOutside;
  int64_t count_ = 0, size_ = 0;
};

const Family<BinCount, kOwnEverywhere> family("bincount");

}  // namespace

}  // namespace hlo_dispatch::counting
