// Arithmetic on numbers that attributes give: sizes, strides, counts. An executable may come from a file, so nothing
// that is computed from them is trusted to fit, and what does not fit is an error that names the attribute.
#ifndef HLO_DISPATCH_COMMON_CHECKED_H_
#define HLO_DISPATCH_COMMON_CHECKED_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hlo_dispatch {

// What x86-64 can address. No buffer is larger, so a tensor that would be is not described truthfully; and sums of
// some such sizes do not overflow.
inline constexpr int64_t kMaxBytes = int64_t{1} << 47;

// These throw Failure(kInvalid) with `what`, an attribute or operand, where the result does not fit.
int64_t Product(int64_t a, int64_t b, const std::string& what);
int64_t Sum(int64_t a, int64_t b, const std::string& what);
// `count` elements of so many bytes; at most kMaxBytes.
int64_t Bytes(int64_t count, int64_t bytes_each, const std::string& what);

// How many elements there are. Throws likewise.
int64_t Elements(const std::vector<int64_t>& dims, const std::string& what);
// How many places lie between the first and the last element, both included; 0 where there is no element. Sizes and
// strides must not be negative. Throws likewise.
int64_t Extent(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, const std::string& what);

// Throws Failure(kInvalid) where two elements overlap, or might overlap.
void CheckApart(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, const std::string& what);
// Throws Failure(kInvalid) unless every place between the first and the last element is that of one element, as in
// all of XLA's arrays: a result that leaves places out would show what was in memory before.
void CheckDense(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, const std::string& what);

// Whether elements lie in the order of their indices, those of the last dimension side by side. The stride of a
// dimension with one element means nothing.
bool IsRowMajor(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_CHECKED_H_
