// hlo_dispatch.own.top_k
//
//   largest[row, i] = values[row, p[skipped + i]],  places[row, i] = p[skipped + i],  i < k - skipped
//
// where p sorts the row's values, f32 or f64, from the largest to the smallest, as XLA's TopK does: in the order -NaN,
// -inf, ..., -0, 0, ..., inf, NaN, and of equal ones the first comes first. Few of a row are found by a bound that
// rises as it is read, so that most vectors are looked at once and left; with many the row is sorted, f32 by vectors.
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/routine.h"
#include "sorting/above.h"
#include "sorting/keys.h"
#include "sorting/quicksort.h"
#include "sorting/radix.h"
#include "sorting/rows.h"

namespace hlo_dispatch::sorting {

namespace {

// With more of a row than one of so many, all of it is sorted: an estimate.
constexpr int64_t kFewest = 16;
// Found elements that are kept before those that cannot be among the result are dropped: an estimate, too.
constexpr int64_t kLeastKept = 256;

// A value as a number that orders the largest first, above the number of its place.
template <typename Bits>
using Numbered = std::conditional_t<sizeof(Bits) == 4, uint64_t, Wide>;

template <typename Bits>
Numbered<Bits> Number(const Bits* values, int64_t place) {
  const Keys<Bits> order(Order::kBits, true);
  return static_cast<Numbered<Bits>>(order.Total(values[place])) << 32 | static_cast<uint32_t>(place);
}
template <typename Bits>
Bits BitsOfElement(Numbered<Bits> element) {
  return Keys<Bits>(Order::kBits, true).OfTotal(static_cast<Bits>(element >> 32));
}

class TopK final : public Routine {
 public:
  TopK(const Provider&, const Attributes& attributes)
      : shape_(ReadRows(attributes, "values")),
        search_(ForThisProcessor(plain::kSearch, avx2::kSearch, avx512::kSearch)),
        quicksort_(ForThisProcessor(plain::kQuicksort, avx2::kQuicksort, avx512::kQuicksort)) {
    const std::string type = attributes.Text("type");
    if (type != "f32" && type != "f64") Unsupported("attribute 'type': expected f32 or f64, got " + type);
    is_double_ = type == "f64";
    std::vector<int64_t> dims = attributes.Integers("largest_dims");
    if (dims.size() != shape_.dims.size()) Invalid("attribute 'largest_dims': expected as many as values have");
    skipped_ = attributes.Has("skipped") ? attributes.Integer("skipped") : 0;
    if (skipped_ < 0 || skipped_ >= shape_.columns) {
      Invalid("attribute 'skipped': expected less than " + std::to_string(shape_.columns) + " of a row, got " +
              std::to_string(skipped_));
    }
    found_ = dims.back();
    if (found_ < 1 || found_ > shape_.columns - skipped_) {
      Invalid("attribute 'largest_dims': expected 1 to " + std::to_string(shape_.columns - skipped_) +
              " of a row, got " + std::to_string(found_));
    }
    k_ = skipped_ + found_;
    std::vector<int64_t> expected = shape_.dims;
    expected.back() = found_;
    for (const char* role : {"largest", "places"}) CheckRows(attributes, role, expected);
    const auto in_buffers = is_double_ ? xla::ffi::F64 : xla::ffi::F32;
    const int64_t bytes = is_double_ ? sizeof(double) : sizeof(float), found = shape_.rows * found_;
    operands_ = {{"values", in_buffers, Bytes(shape_.rows * shape_.columns, bytes, "attribute 'values_dims'")}};
    results_ = {{"largest", in_buffers, found * bytes},
                {"places", xla::ffi::S32, found * static_cast<int64_t>(sizeof(int32_t))}};
  }

  std::string implementation() const override {
    if (IsSelected()) return std::string("selection:") + search_.name;
    return !is_double_ && quicksort_.of64.sort != nullptr ? std::string("quicksort:") + quicksort_.name : "radix_sort";
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (is_double_) return Run<uint64_t>(buffers, parallel);
    Run<uint32_t>(buffers, parallel);
  }

 private:
  bool IsSelected() const { return k_ <= shape_.columns / kFewest; }

  template <typename Bits>
  void Run(const RoutineBuffers& buffers, const Parallel& parallel) const {
    const auto* values = static_cast<const Bits*>(buffers.operands[0]);
    auto* largest = static_cast<Bits*>(buffers.results[0]);
    auto* places = static_cast<int32_t*>(buffers.results[1]);
    parallel.For(shape_.rows, RowsOfPiece(shape_.columns), [&](int64_t begin, int64_t end) {
      std::vector<Numbered<Bits>> found, spare;
      if (!IsSelected()) {
        found.resize(static_cast<size_t>(shape_.columns));
        spare.resize(found.size());
      }
      for (int64_t row = begin; row < end; ++row) {
        const Bits* from = values + row * shape_.columns;
        if (IsSelected()) {
          Select(from, found);
        } else {
          for (int64_t i = 0; i < shape_.columns; ++i) found[i] = Number(from, i);
          SortAll(found, spare);
        }
        for (int64_t i = 0; i < found_; ++i) {
          const Numbered<Bits> element = found[skipped_ + i];
          largest[row * found_ + i] = BitsOfElement<Bits>(element);
          places[row * found_ + i] = static_cast<int32_t>(static_cast<uint32_t>(element));
        }
      }
    });
  }

  void SortAll(std::vector<Wide>& found, std::vector<Wide>& spare) const {
    SortByDigits(found.data(), spare.data(), shape_.columns, false);
  }
  void SortAll(std::vector<uint64_t>& found, std::vector<uint64_t>& spare) const {
    if (quicksort_.of64.sort == nullptr) return SortByDigits(found.data(), spare.data(), shape_.columns, false);
    // It orders signed numbers.
    const auto flip = [&](int64_t count) {
      for (int64_t i = 0; i < count; ++i) found[i] ^= kSignOf<uint64_t>;
    };
    flip(shape_.columns);
    quicksort_.of64.sort(reinterpret_cast<int64_t*>(found.data()), reinterpret_cast<int64_t*>(spare.data()),
                         shape_.columns, false);
    flip(k_);
  }

  // The first k in order.
  template <typename Bits>
  void Select(const Bits* from, std::vector<Numbered<Bits>>& found) const {
    const auto last = [&] { return found.begin() + k_ - 1; };
    const auto most = static_cast<size_t>(std::max(2 * k_, kLeastKept));
    found.clear();
    std::make_signed_t<Bits> bound = 0;
    bool is_bounded = false;
    for (int64_t i = 0; i < shape_.columns; ++i) {
      if (is_bounded && (i = FirstAbove(from, i, bound)) == shape_.columns) break;
      found.push_back(Number(from, i));
      if (found.size() < most) continue;
      std::nth_element(found.begin(), last(), found.end());
      // What comes later and is equal to the last of these is behind it. The search compares signed numbers.
      bound = static_cast<std::make_signed_t<Bits>>(OfBits(BitsOfElement<Bits>(*last())) ^ kSignOf<Bits>);
      is_bounded = true;
      found.resize(static_cast<size_t>(k_));
    }
    std::nth_element(found.begin(), last(), found.end());
    std::sort(found.begin(), found.begin() + k_);
  }

  int64_t FirstAbove(const uint32_t* from, int64_t begin, int32_t bound) const {
    return search_.first_above32(from, begin, shape_.columns, bound);
  }
  int64_t FirstAbove(const uint64_t* from, int64_t begin, int64_t bound) const {
    return search_.first_above64(from, begin, shape_.columns, bound);
  }

  Rows shape_;
  int64_t skipped_ = 0, found_ = 0, k_ = 0;
  bool is_double_ = false;
  const Search& search_;
  const Quicksort& quicksort_;
};

const Family<TopK, kOwnEverywhere> family("top_k");

}  // namespace

}  // namespace hlo_dispatch::sorting
