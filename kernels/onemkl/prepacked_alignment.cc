#include "onemkl/prepacked_alignment.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>
#include <vector>

#include "common/failure.h"

namespace hlo_dispatch::onemkl {

namespace {

// Larger weights are not packed for the test; they get the larger alignment, which is always right.
constexpr int64_t kMaxMeasuredBytes = 64 << 20;

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};

// Bytes, zero before anything is written to them, which begin so far behind a multiple of twice a large page.
class AlignedBuffer {
 public:
  AlignedBuffer(size_t bytes, int64_t distance)
      : memory_(static_cast<char*>(std::calloc(bytes + static_cast<size_t>(2 * kLargePage + distance), 1))) {
    if (memory_ == nullptr) throw std::bad_alloc();
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory_.get()));
    begin_ = memory_.get() + (2 * kLargePage - address % (2 * kLargePage)) % (2 * kLargePage) + distance;
  }

  char* begin() const { return begin_; }

 private:
  std::unique_ptr<char, Free> memory_;
  char* begin_;
};

int64_t MeasureAlignment(const Provider& provider, const GemmFunctions& functions, int rows, int columns, int depth) {
  std::vector<float> weights(static_cast<size_t>(depth) * static_cast<size_t>(columns));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 8191 + 1);
  const size_t bytes = functions.packed_bytes(kPackedB, rows, columns, depth);
  const ThreadLimit limit(provider, 1);
  const auto prepack_at = [&](int64_t distance) {
    AlignedBuffer buffer(bytes, distance);
    functions.pack(kRowMajor, kPackedB, kAsItIs, rows, columns, depth, 1.0f, weights.data(), columns,
                   reinterpret_cast<float*>(buffer.begin()));
    return buffer;
  };
  const AlignedBuffer reference = prepack_at(0);
  for (const int64_t distance : {kPage, kLargePage}) {
    if (std::memcmp(prepack_at(distance).begin(), reference.begin(), bytes) == 0) return distance;
  }
  Unsupported("weights: packed by oneMKL they cannot be moved on this processor");
}

}  // namespace

int64_t PrepackedAlignment(const Provider& provider, const GemmFunctions& functions, int rows, int columns, int depth) {
  if (static_cast<int64_t>(columns) * depth > kMaxMeasuredBytes / static_cast<int64_t>(sizeof(float)))
    return kLargePage;
  static std::mutex mutex;
  static auto* known = new std::map<std::tuple<int, int, int>, int64_t>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto key = std::make_tuple(rows, columns, depth);
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  return known->emplace(key, MeasureAlignment(provider, functions, rows, columns, depth)).first->second;
}

}  // namespace hlo_dispatch::onemkl
