// A source of few rows as numbers of 32 bits, for products with prepacked weights, of one execution.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_SPLIT_SOURCE_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_SPLIT_SOURCE_H_

#include <cstdint>
#include <memory>

#include "quantized_matmul/halves.h"
#include "quantized_matmul/integer_arithmetic.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

class SplitSource {
 public:
  SplitSource(const SplitProducts& arithmetic, const Problem& problem, const WidenedMatrix& source);
  SplitSource(const SplitSource&) = delete;
  SplitSource& operator=(const SplitSource&) = delete;

  const SplitRows& rows() const { return rows_; }
  // Whether that is as exact as f32 is.
  bool is_exact() const { return is_exact_; }

 private:
  std::unique_ptr<int8_t[]> digits_;
  std::unique_ptr<float[]> scales_;
  std::unique_ptr<int32_t[]> sums_;
  SplitRows rows_;
  bool is_exact_ = true;
};

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_SPLIT_SOURCE_H_
