#include "common/checked.h"

#include <algorithm>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

[[noreturn]] void TooLarge(const std::string& what) {
  Invalid(what + ": expected sizes of a buffer in memory, got ones that exceed it");
}

std::string Listed(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return text + "]";
}

std::string Described(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  return "strides " + Listed(strides) + " of sizes " + Listed(dims);
}

}  // namespace

int64_t Product(int64_t a, int64_t b, const std::string& what) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) TooLarge(what);
  return product;
}

int64_t Sum(int64_t a, int64_t b, const std::string& what) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) TooLarge(what);
  return sum;
}

int64_t Bytes(int64_t count, int64_t bytes_each, const std::string& what) {
  const int64_t bytes = Product(count, bytes_each, what);
  if (bytes > kMaxBytes) TooLarge(what);
  return bytes;
}

int64_t Elements(const std::vector<int64_t>& dims, const std::string& what) {
  int64_t count = 1;
  for (int64_t size : dims) count = Product(count, size, what);
  return count;
}

int64_t Extent(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, const std::string& what) {
  int64_t extent = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return 0;
    extent = Sum(extent, Product(dims[i] - 1, strides[i], what), what);
  }
  return extent;
}

void CheckApart(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, const std::string& what) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return;
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride, size
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1) steps.emplace_back(strides[i], dims[i]);
  }
  std::sort(steps.begin(), steps.end());
  // Each dimension has to step over everything that those inside of it reach.
  int64_t reached = 1;
  for (const auto& [stride, size] : steps) {
    if (stride < reached) Invalid(what + ": expected a place for each element, got " + Described(dims, strides));
    reached = Sum(reached, Product(size - 1, stride, what), what);
  }
}

void CheckDense(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, const std::string& what) {
  CheckApart(dims, strides, what);
  if (Extent(dims, strides, what) == Elements(dims, what)) return;
  Invalid(what + ": expected a dense array, got " + Described(dims, strides));
}

bool IsRowMajor(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  if (dims.size() != strides.size()) return false;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) {
    if (dims[i] != 1 && strides[i] != stride) return false;
  }
  return true;
}

}  // namespace hlo_dispatch
