// A source rounded to eight bits for products of integers, of one execution.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_ROUNDED_SOURCE_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_ROUNDED_SOURCE_H_

#include <cstdint>
#include <memory>

#include "common/parallel.h"
#include "quantized_matmul/integer_arithmetic.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

class RoundedSource {
 public:
  RoundedSource(const IntegerArithmetic& arithmetic, const Problem& problem, const void* buffer,
                const Parallel& parallel);
  RoundedSource(const RoundedSource&) = delete;
  RoundedSource& operator=(const RoundedSource&) = delete;

  const RoundedRows& rows() const { return rows_; }

 private:
  std::unique_ptr<int8_t[]> numbers_;
  std::unique_ptr<float[]> scales_;
  std::unique_ptr<int32_t[]> sums_;
  RoundedRows rows_;
};

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_ROUNDED_SOURCE_H_
