// Keys as whole numbers in their order.
#ifndef HLO_DISPATCH_SORTING_KEYS_H_
#define HLO_DISPATCH_SORTING_KEYS_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace hlo_dispatch::sorting {

template <typename Bits>
inline constexpr Bits kSignOf = Bits{1} << (8 * sizeof(Bits) - 1);

// The bits of a float as a number in their order: -NaN, -inf, ..., -0, 0, ..., inf, NaN; and back.
template <typename Bits>
constexpr Bits OfBits(Bits bits) {
  return (bits & kSignOf<Bits>) != 0 ? static_cast<Bits>(~bits) : bits | kSignOf<Bits>;
}
template <typename Bits>
constexpr Bits BitsOf(Bits ordered) {
  return (ordered & kSignOf<Bits>) != 0 ? ordered ^ kSignOf<Bits> : static_cast<Bits>(~ordered);
}

template <typename Bits>
using FloatOf = std::conditional_t<sizeof(Bits) == 4, float, double>;

template <typename Bits>
FloatOf<Bits> NumberOf(Bits bits) {
  FloatOf<Bits> number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// kNumbers: floats of which -0 equals 0 and NaN is larger than every number. kBits: floats by their bits.
enum class Order { kUnsigned, kSigned, kNumbers, kBits };

template <typename Bits>
class Keys {
 public:
  // With `are_signed` keys are in the order of signed numbers.
  Keys(Order order, bool is_descending, bool are_signed = false)
      : order_(order),
        flipped_(static_cast<Bits>((is_descending ? ~Bits{0} : Bits{0}) ^ (are_signed ? kSignOf<Bits> : Bits{0}))) {}

  bool are_numbers() const { return order_ == Order::kNumbers; }

  // By all bits: what is equal is the same.
  Bits Total(Bits bits) const {
    if (order_ == Order::kUnsigned) return bits ^ flipped_;
    return (order_ == Order::kSigned ? bits ^ kSignOf<Bits> : OfBits(bits)) ^ flipped_;
  }
  Bits OfTotal(Bits ordered) const {
    ordered ^= flipped_;
    if (order_ == Order::kUnsigned) return ordered;
    return order_ == Order::kSigned ? ordered ^ kSignOf<Bits> : BitsOf(ordered);
  }

  // In which equal keys are equal numbers.
  Bits Ordered(Bits bits) const { return Total(order_ == Order::kNumbers ? Canonical(bits) : bits); }
  // Whether a key's own bits follow from that.
  bool IsKnown(Bits bits) const { return order_ != Order::kNumbers || !(IsZero(bits) || IsNan(bits)); }

  // As the thread compares: one that takes numbers below all normal ones for 0 has them equal to 0, too.
  static bool IsZero(Bits bits) { return NumberOf(bits) == 0; }
  static bool IsNan(Bits bits) { return NumberOf(bits) != NumberOf(bits); }

 private:
  static Bits Canonical(Bits bits) {
    if (IsZero(bits)) return 0;
    if (!IsNan(bits)) return bits;
    const auto nan = std::numeric_limits<FloatOf<Bits>>::quiet_NaN();
    std::memcpy(&bits, &nan, sizeof bits);
    return bits;
  }

  Order order_;
  Bits flipped_;
};

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_KEYS_H_
