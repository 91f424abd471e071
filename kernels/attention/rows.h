// What is done to one row of scores, and copies between element types and orders: a part of arithmetic_isa.cc.
#ifndef HLO_DISPATCH_ATTENTION_ROWS_H_
#define HLO_DISPATCH_ATTENTION_ROWS_H_

#include <emmintrin.h>

#include "attention/arithmetic.h"
#include "attention/products.h"
#include "common/vectors.h"

namespace hlo_dispatch::attention {
namespace {

constexpr float kInfinity = __builtin_inff();

// One row; returns by what the sum of its powers so far is to be multiplied.
template <bool pairs>
HLO_DISPATCH_INLINE float WeighRow(float* s, int64_t count, float* peak, float* sum) {
  const int64_t whole = count / kLanes * kLanes;
  Vector most = Repeated(-kInfinity);
  for (int64_t j = 0; j < whole; j += kLanes) most = Larger(Load(s + j), most);
  // Not written behind the scores to be read as a whole: the processor would wait for that.
  if (whole < count) most = Larger(FirstOf(Load(s + whole), count - whole, -kInfinity), most);
  const float before = *peak, largest = Largest(most);
  const float now = largest > before ? largest : before;
  // Scores of minus infinity are powers of 0 as long as there is another one; alone, their sum 0 makes NaN of the row.
  const float base = now == -kInfinity ? 0.0f : now;
  Vector total{};
  const auto weigh = [&](int64_t j, Vector scores) {
    const Vector power = PowerOfTwo((scores - base) * kBinaryLogarithm);
    total += power;
    if constexpr (pairs) {
      Pairs::StoreHalves(reinterpret_cast<char*>(s) + 2 * j, power);
    } else {
      Store(s + j, power);
    }
  };
  for (int64_t j = 0; j < whole; j += kLanes) weigh(j, Load(s + j));
  if (whole < count) weigh(whole, FirstOf(Load(s + whole), count - whole, -kInfinity));
  *peak = now;
  const float factor = before == now          ? 1.0f
                       : before == -kInfinity ? 0.0f
                                              : PowerOfTwo(Repeated((before - base) * kBinaryLogarithm))[0];
  *sum = factor * *sum + Total(total);
  return factor;
}

void Weigh(bool pairs, float* s, int64_t stride, int64_t rows, int64_t count, float* peaks, float* sums,
           float* factors) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = s + r * stride;
    factors[r] = pairs ? WeighRow<Pairs::kExist>(row, count, peaks + r, sums + r)
                       : WeighRow<false>(row, count, peaks + r, sums + r);
  }
}

void Scale(float* s, int64_t count, float by) {
  for (int64_t j = 0; j < count; ++j) s[j] *= by;
}

// The row has room for whole vectors.
void Cap(float* s, int64_t count, float cap) {
  for (int64_t j = 0; j < count; j += kLanes) Store(s + j, Tanh(Load(s + j) / cap) * cap);
}

HLO_DISPATCH_INLINE float Number(const char* at, ElementType type) {
  if (type == ElementType::kF32) return *reinterpret_cast<const AnyFloat*>(at);
  const uint16_t half = *reinterpret_cast<const AnyHalf*>(at);
  return type == ElementType::kBF16 ? FromBf16(half) : FromF16(half);
}

// Calls body(c, number) for each column; what is the usual case is a loop of its own.
template <typename Body>
HLO_DISPATCH_INLINE void ForNumbers(const char* row, ElementType type, int64_t column_bytes, int64_t columns,
                                    const Body& body) {
  if (type == ElementType::kF32 && column_bytes == 4) {
    for (int64_t c = 0; c < columns; ++c) body(c, reinterpret_cast<const AnyFloat*>(row)[c]);
  } else if (type == ElementType::kBF16 && column_bytes == 2) {
    for (int64_t c = 0; c < columns; ++c) body(c, FromBf16(reinterpret_cast<const AnyHalf*>(row)[c]));
  } else if (type == ElementType::kF16 && column_bytes == 2) {
    for (int64_t c = 0; c < columns; ++c) body(c, FromF16(reinterpret_cast<const AnyHalf*>(row)[c]));
  } else {
    for (int64_t c = 0; c < columns; ++c) body(c, Number(row + c * column_bytes, type));
  }
}

void Add(float* s, int64_t count, Matrix row) {
  if (row.column_bytes == 0) {
    const float number = Number(row.first, row.type);
    for (int64_t j = 0; j < count; ++j) s[j] += number;
    return;
  }
  ForNumbers(row.first, row.type, row.column_bytes, count, [s](int64_t j, float number) { s[j] += number; });
}

void Select(float* s, int64_t count, Matrix row, float otherwise) {
  if (row.column_bytes == 1) {
    for (int64_t j = 0; j < count; ++j) s[j] = row.first[j] != 0 ? s[j] : otherwise;
    return;
  }
  for (int64_t j = 0; j < count; ++j) s[j] = row.first[j * row.column_bytes] != 0 ? s[j] : otherwise;
}

void Fetch(bool pairs, Matrix from, int64_t rows, int64_t columns, char* to, int64_t to_bytes) {
  const int64_t bytes = pairs ? 2 : 4;
  const int64_t room = to_bytes / bytes;
  if (!pairs && from.row_bytes < from.column_bytes) {
    // Along memory, with what is written in the cache.
    for (int64_t c = 0; c < columns; ++c) {
      auto* column = reinterpret_cast<AnyFloat*>(to) + c;
      ForNumbers(from.first + c * from.column_bytes, from.type, from.row_bytes, rows,
                 [column, room](int64_t r, float number) { column[r * room] = number; });
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = columns; c < room; ++c) reinterpret_cast<AnyFloat*>(to)[r * room + c] = 0;
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const char* row = from.first + r * from.row_bytes;
    if (pairs) {
      auto* halves = reinterpret_cast<AnyHalf*>(to + r * to_bytes);
      for (int64_t c = 0; c < columns; ++c) {
        halves[c] = *reinterpret_cast<const AnyHalf*>(row + c * from.column_bytes);
      }
      for (int64_t c = columns; c < room; ++c) halves[c] = 0;
    } else {
      auto* numbers = reinterpret_cast<AnyFloat*>(to + r * to_bytes);
      ForNumbers(row, from.type, from.column_bytes, columns,
                 [numbers](int64_t c, float number) { numbers[c] = number; });
      for (int64_t c = columns; c < room; ++c) numbers[c] = 0;
    }
  }
}

void PackColumns(const char* from, int64_t from_bytes, int64_t rows, int64_t units, float* to, int64_t width) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const char* four = from + r * from_bytes;
    int64_t k = 0;
    for (; k + 4 <= units; k += 4) {
      const auto load = [&](int64_t i) {
        return _mm_loadu_ps(reinterpret_cast<const float*>(four + i * from_bytes) + k);
      };
      __m128 a = load(0), b = load(1), c = load(2), d = load(3);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(to + k * width + r, a);
      _mm_storeu_ps(to + (k + 1) * width + r, b);
      _mm_storeu_ps(to + (k + 2) * width + r, c);
      _mm_storeu_ps(to + (k + 3) * width + r, d);
    }
    for (; k < units; ++k) {
      for (int64_t i = 0; i < 4; ++i) {
        to[k * width + r + i] = reinterpret_cast<const AnyFloat*>(four + i * from_bytes)[k];
      }
    }
  }
  for (; r < rows; ++r) {
    const auto* row = reinterpret_cast<const AnyFloat*>(from + r * from_bytes);
    for (int64_t k = 0; k < units; ++k) to[k * width + r] = row[k];
  }
  for (int64_t k = 0; rows < width && k < units; ++k) {
    for (int64_t i = rows; i < width; ++i) to[k * width + i] = 0;
  }
}

void PackRows(bool pairs, const char* from, int64_t from_bytes, int64_t rows, int64_t columns, float* to,
              int64_t width) {
  if (!pairs) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto* row = reinterpret_cast<const AnyFloat*>(from + r * from_bytes);
      for (int64_t c = 0; c < columns; ++c) to[r * width + c] = row[c];
      for (int64_t c = columns; c < width; ++c) to[r * width + c] = 0;
    }
    return;
  }
  for (int64_t r = 0; r < rows; r += 2) {
    const auto* upper = reinterpret_cast<const AnyHalf*>(from + r * from_bytes);
    const auto* lower = reinterpret_cast<const AnyHalf*>(from + (r + 1) * from_bytes);
    auto* units = reinterpret_cast<AnyBits*>(to + r / 2 * width);
    if (r + 1 < rows) {
      for (int64_t c = 0; c < columns; ++c) units[c] = upper[c] | static_cast<uint32_t>(lower[c]) << 16;
    } else {
      for (int64_t c = 0; c < columns; ++c) units[c] = upper[c];
    }
    for (int64_t c = columns; c < width; ++c) units[c] = 0;
  }
}

void Put(const float* from, int64_t columns, float by, char* to, ElementType type, int64_t column_bytes) {
  if (type == ElementType::kF32 && column_bytes == 4) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      const Vector some = Load(from + c) * by;
      if (c + kLanes <= columns) {
        Store(reinterpret_cast<float*>(to) + c, some);
      } else {
        StoreFirst(reinterpret_cast<float*>(to) + c, some, columns - c);
      }
    }
  } else if (type == ElementType::kBF16 && column_bytes == 2 && Pairs::kExist) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      if (c + kLanes <= columns) {
        Pairs::StoreHalves(to + 2 * c, Load(from + c) * by);
      } else {
        Pairs::StoreFirstHalves(to + 2 * c, Load(from + c) * by, columns - c);
      }
    }
  } else if (type == ElementType::kBF16 && column_bytes == 2) {
    for (int64_t c = 0; c < columns; ++c) reinterpret_cast<AnyHalf*>(to)[c] = ToBf16(from[c] * by);
  } else {
    for (int64_t c = 0; c < columns; ++c) {
      const float number = from[c] * by;
      char* at = to + c * column_bytes;
      if (type == ElementType::kF32) {
        *reinterpret_cast<AnyFloat*>(at) = number;
      } else {
        *reinterpret_cast<AnyHalf*>(at) = type == ElementType::kBF16 ? ToBf16(number) : ToF16(number);
      }
    }
  }
}

}  // namespace
}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_ROWS_H_
