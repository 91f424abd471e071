#include "convolution/channels.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/rounding.h"

namespace hlo_dispatch::convolution {

namespace {

// So many multiply-adds, which touch as many numbers, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 16;
constexpr int64_t kItemsPerThread = 4;
// Positions of a row that a thread computes at once: so many numbers.
constexpr int64_t kPieceOfRow = 1 << 13;

template <typename T>
class Row {
 public:
  Row(const Problem& problem, const Loops<T>& loops, const T* source, const T* weights, T* result)
      : problem_(problem), loops_(loops), source_(source), weights_(weights), result_(result) {}

  // Positions [begin, end) of one row of results.
  void Compute(int64_t image, int64_t depth, int64_t row, int64_t begin, int64_t end) {
    FindRows(image, depth, row);
    T* const to =
        result_ + image * problem_.result_image + depth * problem_.result_space[0] + row * problem_.result_space[1];
    while (begin < end) {
      const int64_t next = std::min(end, SameUntil(begin));
      Multiply(begin, next, to);
      begin = next;
    }
  }

 private:
  struct Met {
    const T* row;      // of the source
    const T* weights;  // of the window's row
  };

  int64_t Place(size_t dimension, int64_t result, int64_t k) const {
    return result * problem_.strides[dimension] + k * problem_.dilations[dimension] - problem_.padding[dimension];
  }
  bool IsInside(size_t dimension, int64_t place) const { return place >= 0 && place < problem_.source[dimension]; }

  void FindRows(int64_t image, int64_t depth, int64_t row) {
    met_.clear();
    for (int64_t i = 0; i < problem_.kernel[0]; ++i) {
      for (int64_t j = 0; j < problem_.kernel[1]; ++j) {
        const int64_t above = Place(0, depth, i), at = Place(1, row, j);
        if (!IsInside(0, above) || !IsInside(1, at)) continue;
        met_.push_back(
            {source_ + image * problem_.source_image + above * problem_.source_space[0] + at * problem_.source_space[1],
             weights_ + (i * problem_.kernel[1] + j) * problem_.kernel[2] * problem_.groups});
      }
    }
  }

  // The first position behind `position` at which another part of the window lies inside of the source.
  int64_t SameUntil(int64_t position) const {
    int64_t until = problem_.result[2];
    for (int64_t k = 0; k < problem_.kernel[2]; ++k) {
      const int64_t place = Place(2, position, k), stride = problem_.strides[2];
      if (place < 0) {
        until = std::min(until, position + CeilOfRatio(-place, stride));
      } else if (place < problem_.source[2]) {
        until = std::min(until, position + CeilOfRatio(problem_.source[2] - place, stride));
      }
    }
    return until;
  }

  void Multiply(int64_t begin, int64_t end, T* to) {
    from_.clear();
    weights_met_.clear();
    for (const Met& met : met_) {
      for (int64_t k = 0; k < problem_.kernel[2]; ++k) {
        const int64_t place = Place(2, begin, k);
        if (!IsInside(2, place)) continue;
        from_.push_back(met.row + place * problem_.source_space[2]);
        weights_met_.push_back(met.weights + k * problem_.groups);
      }
    }
    loops_.multiply_channels(from_.data(), weights_met_.data(), static_cast<int64_t>(from_.size()), end - begin,
                             problem_.strides[2] * problem_.source_space[2], problem_.result_space[2], problem_.groups,
                             to + begin * problem_.result_space[2]);
  }

  const Problem& problem_;
  const Loops<T>& loops_;
  const T* source_;
  const T* weights_;
  T* result_;
  std::vector<Met> met_;
  std::vector<const T*> from_, weights_met_;
};

}  // namespace

template <typename T>
void ConvolveChannels(const Problem& problem, const Loops<T>& loops, const T* source, const T* weights, T* result,
                      const Parallel& parallel) {
  const Space& size = problem.result;
  const int64_t length = std::max<int64_t>(1, kPieceOfRow / problem.groups), pieces = CeilOfRatio(size[2], length);
  const int64_t items = problem.images * size[0] * size[1] * pieces;
  const int64_t threads = parallel.ThreadsFor(problem.multiply_adds(), kMinPerThread);
  const int64_t grain = threads == 1 ? items : CeilOfRatio(items, threads * kItemsPerThread);
  parallel.For(items, grain, [&](int64_t begin, int64_t end) {
    Row<T> row(problem, loops, source, weights, result);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t number = i / pieces, first = i % pieces * length;
      row.Compute(number / size[1] / size[0], number / size[1] % size[0], number % size[1], first,
                  std::min(size[2], first + length));
    }
  });
}

template void ConvolveChannels(const Problem&, const Loops<float>&, const float*, const float*, float*,
                               const Parallel&);
template void ConvolveChannels(const Problem&, const Loops<double>&, const double*, const double*, double*,
                               const Parallel&);

}  // namespace hlo_dispatch::convolution
