#include "convolution/rows.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "common/failure.h"
#include "common/rounding.h"

namespace hlo_dispatch::convolution {

namespace {

// Numbers of rows that are copied for a block: about as many as a second-level cache holds, and more only where a
// single row of results needs them.
constexpr int64_t kCopied = 1 << 16, kMostCopied = 1 << 24;
constexpr int64_t kMostColumns = 1 << 11;
constexpr int64_t kGroupsOfRows = 4;
// So many multiply-adds, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 17;
constexpr int64_t kItemsPerThread = 4;

// A block of results of one image, group and depth.
struct Item {
  int64_t image, group, depth, row, column;
};

template <typename T>
class Block {
 public:
  Block(const Problem& problem, const Blocks& blocks, const Loops<T>& loops, const T* source, const T* weights,
        T* result)
      : problem_(problem), blocks_(blocks), loops_(loops), source_(source), weights_(weights), result_(result) {
    const int64_t rows = problem.inputs * problem.kernel[0] * blocks.source_rows;
    copied_.resize(static_cast<size_t>(rows));
    copies_.reset(new T[static_cast<size_t>(rows * row_length())]);
    sums_.reset(new T[static_cast<size_t>(kSharing * blocks.width)]);
    for (int64_t k = 0; k < problem.kernel[2]; ++k) {
      const int64_t at = k * problem.dilations[2], stride = problem.strides[2];
      if (k < blocks.phases) phases_.push_back(at % stride);
      const auto phase = std::find(phases_.begin(), phases_.end(), at % stride) - phases_.begin();
      places_.push_back(phase * blocks.phase_length + at / stride);
    }
  }

  void Compute(const Item& item) {
    item_ = item;
    std::fill(copied_.begin(), copied_.end(), 0);
    const int64_t last = std::min(problem_.result[1], item.row + blocks_.rows);
    if (blocks_.shares_rows) {
      for (int64_t row = item.row; row < last; ++row) {
        const int64_t within = (row - item.row) % (kSharing * blocks_.row_step);
        if (within >= blocks_.row_step) continue;  // shares with one before it
        if (row + (kSharing - 1) * blocks_.row_step < last) {
          AddSharedRows(row);
        } else {
          for (int64_t r = row; r < last; r += blocks_.row_step) AddRow(r);
        }
      }
    } else {
      for (int64_t row = item.row; row < last; ++row) AddRow(row);
    }
  }

 private:
  int64_t row_length() const { return blocks_.phases * blocks_.phase_length; }
  int64_t weights_of_output() const { return problem_.inputs * problem_.window(); }
  const T* WeightsOf(int64_t input, int64_t depth, int64_t row) const {
    const int64_t first = item_.group * problem_.outputs * weights_of_output();
    return weights_ + first + ((input * problem_.kernel[0] + depth) * problem_.kernel[1] + row) * problem_.kernel[2];
  }
  // Of the source, that position k of the window meets at `result`; outside of it where there is padding.
  int64_t Met(size_t dimension, int64_t result, int64_t k) const {
    return result * problem_.strides[dimension] + k * problem_.dilations[dimension] - problem_.padding[dimension];
  }

  // The copy of a row, made where it is met first.
  const T* Row(int64_t input, int64_t window_depth, int64_t depth, int64_t row) {
    const int64_t slot = row - Met(1, item_.row, 0);
    const int64_t number = (input * problem_.kernel[0] + window_depth) * blocks_.source_rows + slot;
    T* const copy = copies_.get() + number * row_length();
    if (copied_[static_cast<size_t>(number)] != 0) return copy;
    copied_[static_cast<size_t>(number)] = 1;
    const T* const from = source_ + item_.image * problem_.source_image +
                          (item_.group * problem_.inputs + input) * problem_.source_channel +
                          depth * problem_.source_space[0] + row * problem_.source_space[1];
    const int64_t stride = problem_.strides[2], step = problem_.source_space[2], size = problem_.source[2];
    for (size_t phase = 0; phase < phases_.size(); ++phase) {
      T* const to = copy + static_cast<int64_t>(phase) * blocks_.phase_length;
      const int64_t first = item_.column * stride + phases_[phase] - problem_.padding[2];
      const int64_t begin = std::min(blocks_.phase_length, first < 0 ? CeilOfRatio(-first, stride) : 0);
      const int64_t within = size - first > 0 ? CeilOfRatio(size - first, stride) : 0;
      const int64_t end = std::max(begin, std::min(blocks_.phase_length, within));
      std::fill(to, to + begin, T{0});
      const T* const start = from + first * step;
      if (stride * step == 1) {
        std::copy(start + begin, start + end, to + begin);
      } else {
        for (int64_t i = begin; i < end; ++i) to[i] = start[i * stride * step];
      }
      std::fill(to + end, to + blocks_.phase_length, T{0});
    }
    return copy;
  }

  // Calls add(input, window_depth, depth) for those that lie in the source.
  template <typename Add>
  void ForEachPlane(Add add) const {
    for (int64_t input = 0; input < problem_.inputs; ++input) {
      for (int64_t k = 0; k < problem_.kernel[0]; ++k) {
        const int64_t depth = Met(0, item_.depth, k);
        if (depth >= 0 && depth < problem_.source[0]) add(input, k, depth);
      }
    }
  }

  void AddRow(int64_t row) {
    terms_.clear();
    AddTermsOf(row, 0, problem_.kernel[1], terms_);
    int64_t output = 0;
    if (blocks_.shares_channels) {
      for (; output + kSharing <= problem_.outputs; output += kSharing) {
        ForEachTile([&](int64_t column) {
          Clear();
          Add(terms_, column, output * weights_of_output(), weights_of_output(), kSharing, 0);
          for (int64_t r = 0; r < kSharing; ++r) Write(output + r, row, column, r);
        });
      }
    }
    for (; output < problem_.outputs; ++output) {
      ForEachTile([&](int64_t column) {
        Clear();
        Add(terms_, column, output * weights_of_output(), 0, 1, 0);
        Write(output, row, column, 0);
      });
    }
  }

  // kSharing rows of results, row_step apart.
  void AddSharedRows(int64_t row) {
    const int64_t behind = (kSharing - 1) * blocks_.weights_step;  // weights of the first row that all have
    terms_.clear();
    // Weights are the first row's: those of the next one lie weights_step rows in front.
    AddTermsOf(row, behind, problem_.kernel[1], terms_);
    for (int64_t r = 0; r < kSharing; ++r) {
      std::vector<Term<T>>& terms = own_terms_[r];
      terms.clear();
      const int64_t met = row + r * blocks_.row_step;
      AddTermsOf(met, 0, behind - r * blocks_.weights_step, terms);
      AddTermsOf(met, problem_.kernel[1] - r * blocks_.weights_step, problem_.kernel[1], terms);
    }
    const int64_t distance = -blocks_.weights_step * problem_.kernel[2];
    for (int64_t output = 0; output < problem_.outputs; ++output) {
      const int64_t shift = output * weights_of_output();
      ForEachTile([&](int64_t column) {
        Clear();
        Add(terms_, column, shift, distance, kSharing, 0);
        for (int64_t r = 0; r < kSharing; ++r) {
          Add(own_terms_[r], column, shift, 0, 1, r);
          Write(output, row + r * blocks_.row_step, column, r);
        }
      });
    }
  }

  // Those of a row of results with rows [begin, end) of the window.
  void AddTermsOf(int64_t row, int64_t begin, int64_t end, std::vector<Term<T>>& terms) {
    ForEachPlane([&](int64_t input, int64_t window_depth, int64_t depth) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t met = Met(1, row, k);
        if (met < 0 || met >= problem_.source[1]) continue;
        terms.push_back({Row(input, window_depth, depth, met), WeightsOf(input, window_depth, k)});
      }
    });
  }

  template <typename Compute>
  void ForEachTile(Compute compute) const {
    const int64_t end = std::min(blocks_.columns, problem_.result[2] - item_.column);
    for (int64_t column = 0; column < end; column += blocks_.width) compute(column);
  }

  void Clear() { std::fill(sums_.get(), sums_.get() + kSharing * blocks_.width, T{0}); }

  void Add(const std::vector<Term<T>>& terms, int64_t column, int64_t shift, int64_t distance, int64_t sharing,
           int64_t result) {
    if (terms.empty()) return;
    loops_.add_rows({terms.data(), static_cast<int64_t>(terms.size()), places_.data(), problem_.kernel[2], column,
                     shift, distance, sharing, blocks_.width, sums_.get() + result * blocks_.width});
  }

  void Write(int64_t output, int64_t row, int64_t column, int64_t result) const {
    const int64_t first = item_.column + column, count = std::min(blocks_.width, problem_.result[2] - first);
    const int64_t step = problem_.result_space[2];
    T* const to = result_ + item_.image * problem_.result_image +
                  (item_.group * problem_.outputs + output) * problem_.result_channel +
                  item_.depth * problem_.result_space[0] + row * problem_.result_space[1] + first * step;
    const T* const from = sums_.get() + result * blocks_.width;
    for (int64_t i = 0; i < count; ++i) to[i * step] = from[i];
  }

  const Problem& problem_;
  const Blocks& blocks_;
  const Loops<T>& loops_;
  const T* source_;
  const T* weights_;
  T* result_;
  Item item_{};
  std::vector<char> copied_;
  std::unique_ptr<T[]> copies_, sums_;
  std::vector<int64_t> phases_, places_;
  std::vector<Term<T>> terms_, own_terms_[kSharing];
};

}  // namespace

Blocks::Blocks(const Problem& problem, int64_t narrow, int64_t wide) {
  const int64_t stride = problem.strides[1], dilation = problem.dilations[1];
  const int64_t common = std::gcd(stride, dilation);
  row_step = dilation / common;
  weights_step = stride / common;
  shares_channels = problem.outputs >= kSharing;
  shares_rows = !shares_channels && problem.kernel[1] > (kSharing - 1) * weights_step &&
                problem.result[1] > (kSharing - 1) * row_step;
  width = problem.result[2] <= narrow ? narrow : wide;
  phases = std::min(problem.strides[2], problem.kernel[2]);
  const int64_t planes = problem.inputs * problem.kernel[0];
  const auto measure = [&] {
    source_rows = (rows - 1) * stride + (problem.kernel[1] - 1) * dilation + 1;
    phase_length = RoundUpTo(columns, width) + (problem.kernel[2] - 1) * problem.dilations[2] / problem.strides[2] + 1;
    return static_cast<double>(planes) * static_cast<double>(source_rows) * static_cast<double>(phases * phase_length);
  };
  const int64_t together = shares_rows ? kSharing * row_step : 1;
  rows = std::min(problem.result[1], kGroupsOfRows * (shares_rows ? together : kSharing));
  columns = std::min(problem.result[2], kMostColumns);
  while (measure() > kCopied && rows > together) rows = std::max(together, rows / 2 / together * together);
  while (measure() > kCopied && columns > wide) columns = std::max(wide, columns / 2 / wide * wide);
  if (measure() > kMostCopied) Unsupported("own.convolution: its rows are too many for copies of them");
}

template <typename T>
void ConvolveRows(const Problem& problem, const Blocks& blocks, const Loops<T>& loops, const T* source,
                  const T* weights, T* result, const Parallel& parallel) {
  const int64_t down = CeilOfRatio(problem.result[1], blocks.rows);
  const int64_t across = CeilOfRatio(problem.result[2], blocks.columns);
  const int64_t items = problem.images * problem.groups * problem.result[0] * down * across;
  const int64_t threads = parallel.ThreadsFor(problem.multiply_adds(), kMinPerThread);
  const int64_t grain = threads == 1 ? items : CeilOfRatio(items, threads * kItemsPerThread);
  parallel.For(items, grain, [&](int64_t begin, int64_t end) {
    Block<T> block(problem, blocks, loops, source, weights, result);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t planes = i / across / down;
      block.Compute({planes / problem.result[0] / problem.groups, planes / problem.result[0] % problem.groups,
                     planes % problem.result[0], i / across % down * blocks.rows, i % across * blocks.columns});
    }
  });
}

template void ConvolveRows(const Problem&, const Blocks&, const Loops<float>&, const float*, const float*, float*,
                           const Parallel&);
template void ConvolveRows(const Problem&, const Blocks&, const Loops<double>&, const double*, const double*, double*,
                           const Parallel&);

}  // namespace hlo_dispatch::convolution
