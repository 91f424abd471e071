// hlo_dispatch.own.sort, hlo_dispatch.own.sort_with_places
//
//   sorted_keys[row, i] = keys[row, p[i]],  sorted_places[row, i] = places[row, p[i]]
//
// where p sorts the row's keys, f32, from the smallest to the largest, as JAX does: -0 and 0 are equal, NaN is larger
// than every number, and what is equal keeps its order. `places` (s32) go along with their keys; own.sort has none.
// A row is sorted by digits of its keys' bits, without comparing any two: that takes time in proportion to its length.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/routine.h"

namespace hlo_dispatch::sorting {

namespace {

constexpr int kDigitBits = 11, kDigits = 3;
constexpr uint32_t kValues = 1 << kDigitBits;
// Rows that are handed to a thread together: so many elements, some tens of microseconds.
constexpr int64_t kGrain = 1 << 13;

// A key whose order is that of unsigned numbers, above the number of its element.
using Numbered = uint64_t;
using Counts = std::array<uint32_t, kValues>;

uint32_t Ordered(float key) {
  // As the thread compares: one that takes numbers below all normal ones for 0 has them equal to 0, too.
  if (key == 0.0f) key = 0.0f;
  if (key != key) key = std::numeric_limits<float>::quiet_NaN();
  uint32_t bits;
  std::memcpy(&bits, &key, sizeof bits);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

uint32_t Digit(Numbered element, int digit) {
  return static_cast<uint32_t>(element >> (32 + digit * kDigitBits)) & (kValues - 1);
}

// Memory for a row, used again for the next.
class RowSorter {
 public:
  explicit RowSorter(int64_t count)
      : count_(count), from_(new Numbered[static_cast<size_t>(count)]), to_(new Numbered[static_cast<size_t>(count)]) {}

  void Sort(const float* keys, const int32_t* places, float* sorted_keys, int32_t* sorted_places) {
    for (Counts& counts : counts_) counts.fill(0);
    for (int64_t i = 0; i < count_; ++i) {
      const Numbered element = static_cast<Numbered>(Ordered(keys[i])) << 32 | static_cast<Numbered>(i);
      from_[static_cast<size_t>(i)] = element;
      for (int digit = 0; digit < kDigits; ++digit) ++counts_[digit][Digit(element, digit)];
    }
    for (int digit = 0; digit < kDigits; ++digit) Distribute(digit);
    for (int64_t i = 0; i < count_; ++i) {
      const auto number = static_cast<uint32_t>(from_[static_cast<size_t>(i)]);
      sorted_keys[i] = keys[number];
      if (places != nullptr) sorted_places[i] = places[number];
    }
  }

 private:
  // Puts elements of equal digits behind one another, in the order that they are in.
  void Distribute(int digit) {
    Counts& counts = counts_[digit];
    if (counts[Digit(from_[0], digit)] == count_) return;
    uint32_t before = 0;
    for (uint32_t& count : counts) before += std::exchange(count, before);
    for (int64_t i = 0; i < count_; ++i) {
      const Numbered element = from_[static_cast<size_t>(i)];
      to_[counts[Digit(element, digit)]++] = element;
    }
    std::swap(from_, to_);
  }

  int64_t count_;
  std::unique_ptr<Numbered[]> from_, to_;
  std::array<Counts, kDigits> counts_;
};

// Throws unless the attributes describe an array of these dimensions, the last one side by side.
void CheckRows(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims) {
  if (attributes.Integers(role + "_dims") != dims) Invalid(role + ": expected the dimensions of keys");
  const std::vector<int64_t> strides = attributes.Integers(role + "_strides");
  if (strides.size() != dims.size()) Invalid(role + ": expected a stride for each dimension");
  if (!IsRowMajor(dims, strides)) Unsupported(role + ": expected rows behind one another");
}

template <bool kHasPlaces>
class Sort final : public Routine {
 public:
  Sort(const Provider&, const Attributes& attributes) {
    const std::string type = attributes.Text("type");
    if (type != "f32") Unsupported("attribute 'type': expected f32, got " + type);
    const std::vector<int64_t> dims = attributes.Integers("keys_dims");
    if (dims.empty()) Invalid("keys: expected at least one dimension");
    for (const int64_t size : dims) {
      if (size < 1) Invalid("attribute 'keys_dims': expected elements, got a dimension of " + std::to_string(size));
    }
    const int64_t elements = Elements(dims, "attribute 'keys_dims'");
    const int64_t bytes = Bytes(elements, sizeof(float), "attribute 'keys_dims'");
    columns_ = dims.back();
    rows_ = elements / columns_;
    if (columns_ > std::numeric_limits<int32_t>::max()) Unsupported("keys: expected rows that s32 can number");
    for (const char* role : {"keys", "sorted_keys"}) CheckRows(attributes, role, dims);
    operands_ = {{"keys", xla::ffi::F32, bytes}};
    results_ = {{"sorted_keys", xla::ffi::F32, bytes}};
    if constexpr (kHasPlaces) {
      for (const char* role : {"places", "sorted_places"}) CheckRows(attributes, role, dims);
      operands_.push_back({"places", xla::ffi::S32, bytes});
      results_.push_back({"sorted_places", xla::ffi::S32, bytes});
    }
  }

  std::string implementation() const override { return "radix_sort"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* keys = static_cast<const float*>(buffers.operands[0]);
    auto* sorted_keys = static_cast<float*>(buffers.results[0]);
    const int32_t* places = kHasPlaces ? static_cast<const int32_t*>(buffers.operands.back()) : nullptr;
    int32_t* sorted_places = kHasPlaces ? static_cast<int32_t*>(buffers.results.back()) : nullptr;
    parallel.For(rows_, std::max<int64_t>(1, kGrain / columns_), [&](int64_t begin, int64_t end) {
      RowSorter sorter(columns_);
      for (int64_t first = begin * columns_; first < end * columns_; first += columns_) {
        sorter.Sort(keys + first, kHasPlaces ? places + first : nullptr, sorted_keys + first,
                    kHasPlaces ? sorted_places + first : nullptr);
      }
    });
  }

 private:
  int64_t rows_ = 0, columns_ = 0;
};

const Family<Sort<false>, kOwnEverywhere> sort("sort");
const Family<Sort<true>, kOwnEverywhere> sort_with_places("sort_with_places");

}  // namespace

}  // namespace hlo_dispatch::sorting
