// hlo_dispatch.own.searchsorted
//
//   dst[i] = how many numbers of sorted are less than src[i], or with right = 1 not larger
//
// where NaN is larger than all numbers, -0 equals 0, and sorted is in order; of any other array what 'steps' steps of
// bisection find, as in XLA's loop: low, high = 0, N; middle = low + (high - low) / 2; high = middle where src[i] <=
// sorted[middle] (right: <), low = middle elsewhere; dst = high. Operands: sorted (N) and src (..., all of its buffer),
// of f32 or f64. Results: dst (src's dimensions), u32, or u64 with wide = 1, and scratch.
//
// Numbers that are many are searched in intervals of equal length, of which a table says where each begins: evenly
// spaced numbers, as the edges of histograms are, lie in one each.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "common/family.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "common/routine.h"
#include "counting/arithmetic.h"

namespace hlo_dispatch::counting {

namespace {

// Numbers, some fifty microseconds, that are worth waking a thread for.
constexpr double kMinPerThread = 1 << 15;
// Intervals for each number of the array, and at most so many: their table is to stay in the second cache.
constexpr int64_t kIntervalsEach = 4, kMaxIntervals = 1 << 16;
// A table is made where so many numbers are searched for each of the array's.
constexpr int64_t kSearchedForEach = 4;
// No array that the address space holds takes more.
constexpr int64_t kMaxSteps = 64;

const Arithmetic& ArithmeticHere() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

int64_t ReadOption(const Attributes& attributes, const std::string& name, int64_t most) {
  const int64_t value = attributes.Integer(name);
  if (value >= 0 && value <= most) return value;
  Invalid("attribute '" + name + "': expected 0 to " + std::to_string(most) + ", got " + std::to_string(value));
}

StridedArray ReadNumbers(const Attributes& attributes, const std::string& role) {
  const ElementType type = ElementTypeFromName(attributes.Text("type"), "type", Accepted::kSinglesAndDoubles);
  StridedArray array{role, type, attributes.Integers(role + "_dims"), attributes.Integers(role + "_strides")};
  if (array.dims.size() != array.strides.size()) Invalid(role + ": expected a stride for each dimension");
  for (const int64_t size : array.dims) {
    if (size < 1) Invalid(role + ": expected elements, got a dimension of " + std::to_string(size));
  }
  Bytes(Elements(array.dims, role), ElementBytes(type), role);
  if (!IsRowMajor(array.dims, array.strides)) Unsupported(role + ": expected row-major numbers");
  return array;
}

// A sorted array with the table of its intervals.
template <typename T>
class Table {
 public:
  // Args:
  //   numbers: sorted, NaN at the end.
  Table(const T* numbers, int64_t size, const Searches& searches) {
    const int64_t known = std::find_if(numbers, numbers + size, [](T x) { return x != x; }) - numbers;
    int64_t count = 1;
    while (count < kMaxIntervals && count < kIntervalsEach * known) count *= 2;
    const auto is_finite = [](T x) { return std::isfinite(x); };
    const T* first = std::find_if(numbers, numbers + known, is_finite);
    const T* behind =
        std::find_if(std::make_reverse_iterator(numbers + known), std::make_reverse_iterator(first), is_finite).base();
    intervals_.last = static_cast<int32_t>(count - 1);
    intervals_.lowest = intervals_.scale = 0;
    if (first != behind) {
      const T scale = static_cast<T>(count) / (behind[-1] - *first);
      intervals_.lowest = static_cast<double>(*first);
      // Whatever it is, larger numbers are in no lower interval.
      intervals_.scale = std::isfinite(scale) ? static_cast<double>(scale) : 0;
    }
    std::vector<int32_t> number(static_cast<size_t>(known));
    searches.number(intervals_, numbers, known, number.data());
    // Below an interval is what lies in lower ones.
    starts_.assign(static_cast<size_t>(count) + 1, 0);
    for (const int32_t interval : number) ++starts_[static_cast<size_t>(interval) + 1];
    const int32_t most = *std::max_element(starts_.begin(), starts_.end());
    for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
    intervals_.step = 0;
    for (int64_t step = 1; step <= most; step *= 2) intervals_.step = static_cast<int32_t>(step);
    sorted_.assign(numbers, numbers + known);
    sorted_.resize(static_cast<size_t>(known + 2 * intervals_.step), std::numeric_limits<T>::quiet_NaN());
    intervals_.sorted = sorted_.data();
    intervals_.starts = starts_.data();
    known_ = known;
  }

  Intervals intervals(int64_t of_nan) const {
    Intervals found = intervals_;
    found.of_nan = of_nan;
    return found;
  }
  int64_t known() const { return known_; }

 private:
  std::vector<T> sorted_;
  std::vector<int32_t> starts_;
  Intervals intervals_{};
  int64_t known_ = 0;
};

template <typename T>
bool IsSorted(const T* numbers, int64_t size) {
  bool is_sorted = true;
  for (int64_t i = 1; i < size; ++i) is_sorted &= numbers[i - 1] <= numbers[i] || numbers[i] != numbers[i];
  return is_sorted;
}

class SearchSorted final : public Routine {
 public:
  SearchSorted(const Provider&, const Attributes& attributes)
      : sorted_(ReadNumbers(attributes, "sorted")),
        source_(ReadNumbers(attributes, "src")),
        is_right_(ReadOption(attributes, "right", 1) != 0),
        is_wide_(ReadOption(attributes, "wide", 1) != 0),
        steps_(ReadOption(attributes, "steps", kMaxSteps)) {
    if (sorted_.dims.size() != 1) Invalid("sorted: expected one dimension");
    size_ = sorted_.dims[0];
    if (size_ > std::numeric_limits<int32_t>::max() / 2) Unsupported("sorted: expected places that s32 can hold");
    if (attributes.Integers("dst_dims") != source_.dims || attributes.Integers("dst_strides") != source_.strides) {
      Invalid("dst: expected src's dimensions and strides");
    }
    count_ = Elements(source_.dims, "src");
    operands_ = {SpecOf(sorted_), SpecOf(source_)};
    results_ = {BufferSpec{"dst", is_wide_ ? xla::ffi::U64 : xla::ffi::U32, Bytes(count_, PlaceBytes(), "dst")},
                PlannedScratch(attributes)};
  }

  std::string implementation() const override { return std::string("searchsorted:") + ArithmeticHere().name; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    if (sorted_.type == ElementType::kF32) {
      Search<float>(buffers, parallel, ArithmeticHere().f32);
    } else {
      Search<double>(buffers, parallel, ArithmeticHere().f64);
    }
  }

 private:
  int64_t PlaceBytes() const { return is_wide_ ? 8 : 4; }

  // Whether so many steps find the place in a sorted array.
  bool ReachesAll() const { return steps_ >= 63 || (int64_t{1} << steps_) > size_; }

  template <typename T>
  void Search(const RoutineBuffers& buffers, const Parallel& parallel, const Searches& searches) const {
    const auto* numbers = static_cast<const T*>(buffers.operands[0]);
    const bool is_sorted = ReachesAll() && count_ / kSearchedForEach >= size_ && IsSorted(numbers, size_);
    if (!is_sorted) {
      const Bisection bisection{numbers, size_, steps_};
      return Divide<T>(buffers, parallel, [&](const T* from, int64_t count, void* to) {
        searches.bisect[is_right_][is_wide_](bisection, from, count, to);
      });
    }
    const Table<T> table(numbers, size_, searches);
    const Intervals intervals = table.intervals(is_right_ ? size_ : table.known());
    Divide<T>(buffers, parallel, [&](const T* from, int64_t count, void* to) {
      searches.place[is_right_][is_wide_](intervals, from, count, to);
    });
  }

  template <typename T, typename Body>
  void Divide(const RoutineBuffers& buffers, const Parallel& parallel, const Body& body) const {
    const auto* from = static_cast<const T*>(buffers.operands[1]);
    auto* to = static_cast<char*>(buffers.results[0]);
    const int64_t threads = parallel.ThreadsFor(static_cast<double>(count_), kMinPerThread);
    parallel.For(count_, CeilOfRatio(count_, threads),
                 [&](int64_t begin, int64_t end) { body(from + begin, end - begin, to + begin * PlaceBytes()); });
  }

  StridedArray sorted_, source_;
  bool is_right_, is_wide_;
  int64_t steps_, size_ = 0, count_ = 0;
};

const Family<SearchSorted, kOwnEverywhere> family("searchsorted");

}  // namespace

}  // namespace hlo_dispatch::counting
