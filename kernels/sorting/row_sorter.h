// Sorting of one row by digits of its keys' bits, without comparing any two: that takes time in proportion to its
// length.
#ifndef HLO_DISPATCH_SORTING_ROW_SORTER_H_
#define HLO_DISPATCH_SORTING_ROW_SORTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "sorting/keys.h"

namespace hlo_dispatch::sorting {

// A key whose order is that of unsigned numbers, above the number of its element.
using Numbered = uint64_t;

inline Numbered Number(uint32_t ordered, int64_t place) {
  return static_cast<Numbered>(ordered) << 32 | static_cast<Numbered>(place);
}
inline uint32_t PlaceOf(Numbered element) { return static_cast<uint32_t>(element); }
inline uint32_t KeyOfElement(Numbered element) { return static_cast<uint32_t>(element >> 32); }

inline constexpr uint32_t kSign = kSignOf<uint32_t>;

// Memory for a row, used again for the next.
class RowSorter {
 public:
  explicit RowSorter(int64_t count)
      : count_(count), from_(new Numbered[static_cast<size_t>(count)]), to_(new Numbered[static_cast<size_t>(count)]) {}

  // Sorts the elements that ordered(i) is the key of, those of equal keys in the order of their places; the result is
  // there until the next call.
  template <typename Ordered>
  const Numbered* Sort(const Ordered& ordered) {
    for (Counts& counts : counts_) counts.fill(0);
    for (int64_t i = 0; i < count_; ++i) {
      const Numbered element = Number(ordered(i), i);
      from_[static_cast<size_t>(i)] = element;
      for (int digit = 0; digit < kDigits; ++digit) ++counts_[digit][Digit(element, digit)];
    }
    for (int digit = 0; digit < kDigits; ++digit) Distribute(digit);
    return from_.get();
  }

 private:
  static constexpr int kDigitBits = 11, kDigits = 3;
  static constexpr uint32_t kValues = 1 << kDigitBits;
  using Counts = std::array<uint32_t, kValues>;

  static uint32_t Digit(Numbered element, int digit) {
    return static_cast<uint32_t>(element >> (32 + digit * kDigitBits)) & (kValues - 1);
  }

  // Puts elements of equal digits behind one another, in the order that they are in.
  void Distribute(int digit);

  int64_t count_;
  std::unique_ptr<Numbered[]> from_, to_;
  std::array<Counts, kDigits> counts_;
};

// Throws unless the attributes describe an array of these dimensions, in rows behind one another.
void CheckRows(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims);
// Rows of an operand, at least one, and columns that s32 can number. Throws where it has others.
struct Rows {
  std::vector<int64_t> dims;
  int64_t rows, columns, bytes;
};
Rows ReadRows(const Attributes& attributes, const std::string& role);
// How many rows of so many columns are handed to a thread together.
int64_t RowsOfPiece(int64_t columns);

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_ROW_SORTER_H_
