// hlo_dispatch.own.sort, hlo_dispatch.own.sort_with_places
//
//   sorted_keys[row, i] = keys[row, p[i]],  sorted_places[row, i] = places[row, p[i]]
//
// where p sorts the row's keys, of f32, f64, s32 or u32, from the smallest to the largest, or with 'descending' the
// other way round, as JAX does: -0 and 0 are equal, NaN is larger than every number, and what is equal keeps its order.
// With 'total_order' the order is that of bits: -NaN, -inf, ..., -0, 0, ..., inf, NaN. `places` (s32, or what
// 'places_type' says: f32, f64, s32, s64 or u32) go along with their keys; own.sort has none.
//
// Keys, and keys of 32 bits above the numbers of their places, are sorted by a vectorized quicksort; others, and on
// processors without vectors, by their digits. A single long row is sorted on all threads. Keys that number all places
// are not compared.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "sorting/keys.h"
#include "sorting/on_threads.h"
#include "sorting/permutation.h"
#include "sorting/quicksort.h"
#include "sorting/radix.h"
#include "sorting/rows.h"

namespace hlo_dispatch::sorting {

namespace {

// Shorter rows are handed to one thread each.
constexpr int64_t kShortestShared = 1 << 16;

struct TypeOfElements {
  const char* name;
  xla::ffi::DataType in_buffers;
  int64_t bytes;
};
constexpr TypeOfElements kTypes[] = {{"f32", xla::ffi::F32, 4},
                                     {"s32", xla::ffi::S32, 4},
                                     {"u32", xla::ffi::U32, 4},
                                     {"f64", xla::ffi::F64, 8},
                                     {"s64", xla::ffi::S64, 8}};

const TypeOfElements& TypeOf(const std::string& type, const std::string& attribute) {
  for (const TypeOfElements& known : kTypes) {
    if (type == known.name) return known;
  }
  Unsupported("attribute '" + attribute + "': expected f32, f64, s32, s64 or u32, got " + type);
}

// --- one row ---------------------------------------------------------------------------------------------------------

// Keys alone, sorted by all bits, in the order of equal keys: zeros and NaN as they were in the row.
template <typename Bits>
void Reorder(const Bits* row, int64_t count, bool is_descending, Bits* sorted) {
  using K = Keys<Bits>;
  int64_t ahead = 0, behind = 0;
  while (ahead < count && K::IsNan(sorted[ahead])) ++ahead;
  while (behind < count - ahead && K::IsNan(sorted[count - behind - 1])) ++behind;
  const int64_t nans = ahead + behind, numbers = count - nans;
  Bits* first = sorted + (is_descending ? nans : 0);
  if (nans > 0) {
    std::memmove(first, sorted + ahead, static_cast<size_t>(numbers) * sizeof(Bits));
    std::copy_if(row, row + count, is_descending ? sorted : sorted + numbers, K::IsNan);
  }
  const auto is_ahead_of_zero = [&](Bits bits) { return is_descending ? NumberOf(bits) > 0 : NumberOf(bits) < 0; };
  Bits* zeros = std::partition_point(first, first + numbers, is_ahead_of_zero);
  Bits* end = std::partition_point(zeros, first + numbers, K::IsZero);
  if (end - zeros > 1 && zeros[0] != end[-1]) std::copy_if(row, row + count, zeros, K::IsZero);
}

template <bool kHasPlaces>
class Sort final : public Routine {
 public:
  Sort(const Provider&, const Attributes& attributes)
      : keys_(TypeOf(attributes.Text("type"), "type")),
        places_(TypeOf(attributes.Has("places_type") ? attributes.Text("places_type") : "s32", "places_type")),
        shape_(ReadRows(attributes, "keys")),
        quicksort_(ForThisProcessor(plain::kQuicksort, avx2::kQuicksort, avx512::kQuicksort)) {
    const std::string name = keys_.name;
    if (name == "s64") Unsupported("attribute 'type': expected f32, f64, s32 or u32, got s64");
    const bool is_total = Flag(attributes, "total_order");
    order_ = name == "s32"   ? Order::kSigned
             : name == "u32" ? Order::kUnsigned
             : is_total      ? Order::kBits
                             : Order::kNumbers;
    is_descending_ = Flag(attributes, "descending");
    CheckRows(attributes, "sorted_keys", shape_.dims);
    const int64_t elements = shape_.rows * shape_.columns;
    const auto bytes = [&](const TypeOfElements& type) { return Bytes(elements, type.bytes, "attribute 'keys_dims'"); };
    operands_ = {{"keys", keys_.in_buffers, bytes(keys_)}};
    results_ = {{"sorted_keys", keys_.in_buffers, bytes(keys_)}};
    if constexpr (kHasPlaces) {
      for (const char* role : {"places", "sorted_places"}) CheckRows(attributes, role, shape_.dims);
      operands_.push_back({"places", places_.in_buffers, bytes(places_)});
      results_.push_back({"sorted_places", places_.in_buffers, bytes(places_)});
    }
    is_vectorized_ = ElementBytes() <= 8 && quicksort_.of64.sort != nullptr;
  }

  std::string implementation() const override {
    return is_vectorized_ ? std::string("quicksort:") + quicksort_.name : "radix_sort";
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (keys_.bytes == 4) return Run<uint32_t>(buffers, parallel);
    Run<uint64_t>(buffers, parallel);
  }

 private:
  // A key, above the number of its place.
  template <typename Bits>
  using Element = std::conditional_t<!kHasPlaces, Bits, std::conditional_t<sizeof(Bits) == 4, uint64_t, Wide>>;

  int64_t ElementBytes() const { return kHasPlaces ? 2 * keys_.bytes : keys_.bytes; }

  static bool Flag(const Attributes& attributes, const std::string& name) {
    const int64_t value = attributes.Has(name) ? attributes.Integer(name) : 0;
    if (value != 0 && value != 1) Invalid("attribute '" + name + "': expected 0 or 1, got " + std::to_string(value));
    return value != 0;
  }

  template <typename Bits>
  void Run(const RoutineBuffers& buffers, const Parallel& parallel) const {
    const Keys<Bits> order(order_, is_descending_, is_vectorized_);
    const int64_t columns = shape_.columns;
    if (shape_.rows >= parallel.threads() || columns < kShortestShared) {
      return parallel.For(shape_.rows, RowsOfPiece(columns), [&](int64_t begin, int64_t end) {
        const auto memory = Memory<Bits>(columns);
        for (int64_t row = begin; row < end; ++row) {
          SortRow<Bits>(buffers, row, order, memory.get(), Parallel());
        }
      });
    }
    const auto memory = Memory<Bits>(columns);
    for (int64_t row = 0; row < shape_.rows; ++row) SortRow<Bits>(buffers, row, order, memory.get(), parallel);
  }

  // For two arrays of elements, and for three where the result has no place for them.
  template <typename Bits>
  std::unique_ptr<Element<Bits>[]> Memory(int64_t count) const {
    const int64_t arrays = is_vectorized_ && kHasPlaces ? 3 : 2;
    return std::unique_ptr<Element<Bits>[]>(new Element<Bits>[static_cast<size_t>(arrays * count)]);
  }

  template <typename Bits>
  static Element<Bits> Made(const Keys<Bits>& order, Bits key, int64_t place) {
    if constexpr (!kHasPlaces) {
      return order.Total(key);
    } else {
      return static_cast<Element<Bits>>(order.Ordered(key)) << (8 * sizeof(Bits)) | static_cast<uint32_t>(place);
    }
  }

  template <typename Bits>
  void SortRow(const RoutineBuffers& buffers, int64_t row, const Keys<Bits>& order, Element<Bits>* elements,
               const Parallel& parallel) const {
    const int64_t columns = shape_.columns, first = row * columns;
    const Bits* keys = static_cast<const Bits*>(buffers.operands[0]) + first;
    if constexpr (kHasPlaces && sizeof(Bits) == 4) {
      if (keys_.in_buffers != xla::ffi::F32 && IsPermuted(buffers, first, reinterpret_cast<uint8_t*>(elements))) return;
    }
    if constexpr (sizeof(Element<Bits>) <= 8) {
      if (is_vectorized_) return SortVectors<Bits>(buffers, row, order, elements, parallel);
    }
    const auto for_pieces = [&](const auto& body) { parallel.For(columns, kShortestShared, body); };
    for_pieces([&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) elements[i] = Made<Bits>(order, keys[i], i);
    });
    SortInParallel(elements, elements + columns, columns, false, parallel);
    for_pieces([&](int64_t begin, int64_t end) { Write<Bits>(buffers, row, order, elements, begin, end); });
    Finish<Bits>(buffers, row, order);
  }

  // Sorts a row whose keys are 0, 1, 2, … in any order, or returns false.
  bool IsPermuted(const RoutineBuffers& buffers, int64_t first, uint8_t* memory) const {
    const auto permute = [&](auto width) {
      using Place = decltype(width);
      return Permute(static_cast<const uint32_t*>(buffers.operands[0]) + first,
                     static_cast<const Place*>(buffers.operands[kHasPlaces]) + first, shape_.columns, is_descending_,
                     memory, static_cast<Place*>(buffers.results[kHasPlaces]) + first);
    };
    if (!(places_.bytes == 4 ? permute(uint32_t{}) : permute(uint64_t{}))) return false;
    auto* keys = static_cast<uint32_t*>(buffers.results[0]) + first;
    for (int64_t i = 0; i < shape_.columns; ++i) {
      keys[i] = static_cast<uint32_t>(is_descending_ ? shape_.columns - 1 - i : i);
    }
    return true;
  }

  template <typename Bits>
  void SortVectors(const RoutineBuffers& buffers, int64_t row, const Keys<Bits>& order, Element<Bits>* memory,
                   const Parallel& parallel) const {
    using Number = std::make_signed_t<Element<Bits>>;
    const int64_t columns = shape_.columns;
    const Bits* keys = static_cast<const Bits*>(buffers.operands[0]) + row * columns;
    auto* numbers = reinterpret_cast<Number*>(memory);
    if constexpr (kHasPlaces) {
      const auto read = [&](Number* to, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) *to++ = static_cast<Number>(Made<Bits>(order, keys[i], i));
      };
      const auto finish = [&](int64_t begin, int64_t end) { Write<Bits>(buffers, row, order, memory, begin, end); };
      SortOnThreads(quicksort_.of64, numbers, numbers + columns, columns, parallel, read, finish);
    } else {
      const auto& kernel = [this]() -> const NumberSort<Number>& {
        if constexpr (sizeof(Number) == 4) {
          return quicksort_.of32;
        } else {
          return quicksort_.of64;
        }
      }();
      auto* sorted = reinterpret_cast<Number*>(static_cast<Bits*>(buffers.results[0]) + row * columns);
      const auto number = [](Bits bits) { return static_cast<Number>(bits); };
      const Bits sign = kSignOf<Bits>;
      const auto read = [&](Number* to, int64_t begin, int64_t end) {
        kernel.exclusive_or(reinterpret_cast<const Number*>(keys) + begin, to, end - begin, number(order.Total(0)),
                            number(order.Total(sign) ^ sign));
      };
      const auto finish = [&](int64_t begin, int64_t end) {
        kernel.exclusive_or(sorted + begin, sorted + begin, end - begin, number(order.OfTotal(0)),
                            number(order.OfTotal(sign) ^ sign));
      };
      SortOnThreads(kernel, sorted, numbers, columns, parallel, read, finish);
      Finish<Bits>(buffers, row, order);
    }
  }

  // Keys and places of sorted elements.
  template <typename Bits>
  void Write(const RoutineBuffers& buffers, int64_t row, const Keys<Bits>& order, const Element<Bits>* sorted,
             int64_t begin, int64_t end) const {
    const int64_t first = row * shape_.columns;
    const Bits* keys = static_cast<const Bits*>(buffers.operands[0]) + first;
    Bits* to = static_cast<Bits*>(buffers.results[0]) + first;
    if constexpr (!kHasPlaces) {
      for (int64_t i = begin; i < end; ++i) to[i] = order.OfTotal(sorted[i]);
    } else {
      for (int64_t i = begin; i < end; ++i) {
        const Bits bits = order.OfTotal(static_cast<Bits>(sorted[i] >> (8 * sizeof(Bits))));
        // Reading keys in their order misses the cache.
        to[i] = order.IsKnown(bits) ? bits : keys[static_cast<uint32_t>(sorted[i])];
      }
      if (places_.bytes == 4) return WritePlaces<uint32_t, Bits>(buffers, first, sorted, begin, end);
      WritePlaces<uint64_t, Bits>(buffers, first, sorted, begin, end);
    }
  }

  template <typename PlaceBits, typename Bits>
  static void WritePlaces(const RoutineBuffers& buffers, int64_t first, const Element<Bits>* sorted, int64_t begin,
                          int64_t end) {
    const PlaceBits* from = static_cast<const PlaceBits*>(buffers.operands[kHasPlaces]) + first;
    PlaceBits* to = static_cast<PlaceBits*>(buffers.results[kHasPlaces]) + first;
    for (int64_t i = begin; i < end; ++i) to[i] = from[static_cast<uint32_t>(sorted[i])];
  }

  template <typename Bits>
  void Finish(const RoutineBuffers& buffers, int64_t row, const Keys<Bits>& order) const {
    if (kHasPlaces || !order.are_numbers()) return;
    const int64_t columns = shape_.columns;
    Reorder<Bits>(static_cast<const Bits*>(buffers.operands[0]) + row * columns, columns, is_descending_,
                  static_cast<Bits*>(buffers.results[0]) + row * columns);
  }

  const TypeOfElements& keys_;
  const TypeOfElements& places_;
  Rows shape_;
  const Quicksort& quicksort_;
  bool is_vectorized_ = false;
  Order order_ = Order::kNumbers;
  bool is_descending_ = false;
};

const Family<Sort<false>, kOwnEverywhere> sort("sort");
const Family<Sort<true>, kOwnEverywhere> sort_with_places("sort_with_places");

}  // namespace

}  // namespace hlo_dispatch::sorting
