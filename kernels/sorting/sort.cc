// hlo_dispatch.own.sort, hlo_dispatch.own.sort_with_places
//
//   sorted_keys[row, i] = keys[row, p[i]],  sorted_places[row, i] = places[row, p[i]]
//
// where p sorts the row's keys, f32 or s32, from the smallest to the largest, or with 'descending' the other way round,
// as JAX does: -0 and 0 are equal, NaN is larger than every number, and what is equal keeps its order. With
// 'total_order' the order is that of bits: -NaN, -inf, ..., -0, 0, ..., inf, NaN. `places` (s32, or f32 where
// 'places_type' says so) go along with their keys; own.sort has none.
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/failure.h"
#include "common/family.h"
#include "common/routine.h"
#include "sorting/row_sorter.h"

namespace hlo_dispatch::sorting {

namespace {

constexpr uint32_t kInfinity = 0x7f800000u;

enum class Order { kIntegers, kNumbers, kBits };

uint32_t OfNumber(uint32_t bits) {
  float key;
  std::memcpy(&key, &bits, sizeof key);
  // As the thread compares: one that takes numbers below all normal ones for 0 has them equal to 0, too.
  if (key == 0.0f) key = 0.0f;
  if (key != key) key = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&bits, &key, sizeof bits);
  return OfBits(bits);
}

xla::ffi::DataType TypeOf(const std::string& type, const std::string& attribute) {
  if (type == "f32") return xla::ffi::F32;
  if (type != "s32") Unsupported("attribute '" + attribute + "': expected f32 or s32, got " + type);
  return xla::ffi::S32;
}

template <bool kHasPlaces>
class Sort final : public Routine {
 public:
  Sort(const Provider&, const Attributes& attributes) : shape_(ReadRows(attributes, "keys")) {
    const xla::ffi::DataType type = TypeOf(attributes.Text("type"), "type");
    const bool is_total = Flag(attributes, "total_order");
    order_ = type == xla::ffi::S32 ? Order::kIntegers : is_total ? Order::kBits : Order::kNumbers;
    flipped_ = Flag(attributes, "descending") ? ~uint32_t{0} : 0;
    CheckRows(attributes, "sorted_keys", shape_.dims);
    operands_ = {{"keys", type, shape_.bytes}};
    results_ = {{"sorted_keys", type, shape_.bytes}};
    if constexpr (kHasPlaces) {
      const xla::ffi::DataType along =
          TypeOf(attributes.Has("places_type") ? attributes.Text("places_type") : "s32", "places_type");
      for (const char* role : {"places", "sorted_places"}) CheckRows(attributes, role, shape_.dims);
      operands_.push_back({"places", along, shape_.bytes});
      results_.push_back({"sorted_places", along, shape_.bytes});
    }
  }

  std::string implementation() const override { return "radix_sort"; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const auto* keys = static_cast<const uint32_t*>(buffers.operands[0]);
    auto* sorted_keys = static_cast<uint32_t*>(buffers.results[0]);
    const uint32_t* places = kHasPlaces ? static_cast<const uint32_t*>(buffers.operands.back()) : nullptr;
    uint32_t* sorted_places = kHasPlaces ? static_cast<uint32_t*>(buffers.results.back()) : nullptr;
    parallel.For(shape_.rows, RowsOfPiece(shape_.columns), [&](int64_t begin, int64_t end) {
      RowSorter sorter(shape_.columns);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row * shape_.columns;
        const uint32_t* from = keys + first;
        const Numbered* sorted = Sorted(sorter, from);
        for (int64_t i = 0; i < shape_.columns; ++i) sorted_keys[first + i] = KeyOf(sorted[i], from);
        if (!kHasPlaces) continue;
        const bool is_count = IsCount(places + first);
        for (int64_t i = 0; i < shape_.columns; ++i) {
          const uint32_t place = PlaceOf(sorted[i]);
          sorted_places[first + i] = is_count ? place : places[first + place];
        }
      }
    });
  }

 private:
  static bool Flag(const Attributes& attributes, const std::string& name) {
    const int64_t value = attributes.Has(name) ? attributes.Integer(name) : 0;
    if (value != 0 && value != 1) Invalid("attribute '" + name + "': expected 0 or 1, got " + std::to_string(value));
    return value != 0;
  }

  const Numbered* Sorted(RowSorter& sorter, const uint32_t* keys) const {
    if (order_ == Order::kIntegers) return sorter.Sort([&](int64_t i) { return (keys[i] ^ kSign) ^ flipped_; });
    if (order_ == Order::kBits) return sorter.Sort([&](int64_t i) { return OfBits(keys[i]) ^ flipped_; });
    return sorter.Sort([&](int64_t i) { return OfNumber(keys[i]) ^ flipped_; });
  }

  // The key of an element, from its own bits where these say it: reading keys in their order misses the cache.
  uint32_t KeyOf(Numbered element, const uint32_t* keys) const {
    const uint32_t ordered = KeyOfElement(element) ^ flipped_;
    if (order_ == Order::kIntegers) return ordered ^ kSign;
    const uint32_t bits = BitsOf(ordered);
    const bool is_known = order_ == Order::kBits || (bits != 0 && (bits & ~kSign) <= kInfinity);
    return is_known ? bits : keys[PlaceOf(element)];
  }

  // Whether these are 0, 1, 2 and so on, as argsort has them.
  bool IsCount(const uint32_t* places) const {
    uint32_t differences = 0;
    for (int64_t i = 0; i < shape_.columns; ++i) differences |= places[i] ^ static_cast<uint32_t>(i);
    return differences == 0;
  }

  Rows shape_;
  Order order_ = Order::kNumbers;
  uint32_t flipped_ = 0;
};

const Family<Sort<false>, kOwnEverywhere> sort("sort");
const Family<Sort<true>, kOwnEverywhere> sort_with_places("sort_with_places");

}  // namespace

}  // namespace hlo_dispatch::sorting
