// Sums of products with weights of some type, in vectors of as many bytes as the file that includes this says.
#ifndef HLO_DISPATCH_NARROW_LOOPS_H_
#define HLO_DISPATCH_NARROW_LOOPS_H_

#include <immintrin.h>

#include <cstdint>

#include "common/vectors.h"
#include "narrow/arithmetic.h"

namespace hlo_dispatch::narrow {
namespace {

// Rows of weights that are worked on at once: sums are fetched and stored once for all of them.
constexpr int kDepth = 8;
// Bytes of a line of the cache, and so many columns as are worked on from one look ahead to the next.
constexpr int64_t kLine = 64, kColumnStep = 64;

HLO_DISPATCH_INLINE Vector Widened(const int8_t* from) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  // The masks keep the compiler from warning of what the plain ones leave undefined.
  const auto all = static_cast<__mmask16>(-1);
  return reinterpret_cast<Vector>(_mm512_maskz_cvtepi32_ps(all, _mm512_maskz_cvtepi8_epi32(all, bytes)));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Vector>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
  typedef int8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Bytes*>(from), Vector);
#endif
}

HLO_DISPATCH_INLINE Vector Widened(const Bf16* from) { return LoadBf16(reinterpret_cast<const char*>(from)); }
HLO_DISPATCH_INLINE Vector Widened(const float* from) { return Load(from); }

// The same of `count` weights, and 0 behind them, where no more may be read.
template <typename W>
HLO_DISPATCH_INLINE Vector WidenedFirst(const W* from, int64_t count) {
  W weights[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) weights[i] = from[i];
  return Widened(weights);
}

template <typename W>
HLO_DISPATCH_INLINE const W* WeightsOf(const Piece& piece) {
  return static_cast<const W*>(piece.weights);
}

HLO_DISPATCH_INLINE Vector LoadFirst(const float* from, int64_t count) {
  float values[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return Load(values);
}

// --- columns side by side ---------------------------------------------------------------------------------------

#if defined(__AVX512F__)
#define HLO_DISPATCH_IN_REGISTER(vector) asm("" : "+v"(vector))
#else
#define HLO_DISPATCH_IN_REGISTER(vector) asm("" : "+x"(vector))
#endif

// Into the second-level cache: rows of weights often lie a multiple of the first-level one's ways apart, which would
// put what is fetched ahead in each other's place.
HLO_DISPATCH_INLINE void Fetch(const void* from) { __builtin_prefetch(from, /*rw=*/0, /*locality=*/2); }

// sums += source · weights for some vectors of columns and kRows x kRowsOfWeights factors.
template <int kRows, int kRowsOfWeights, int kVectors, typename W>
HLO_DISPATCH_INLINE void AddVectors(const Vector (&factors)[kRows][kRowsOfWeights], const W* weights, int64_t distance,
                                    float* sums, int64_t sums_distance) {
  Vector total[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) total[row][i] = Load(sums + row * sums_distance + i * kLanes);
  }
  for (int k = 0; k < kRowsOfWeights; ++k) {
    Vector wide[kVectors];
    for (int i = 0; i < kVectors; ++i) wide[i] = Widened(weights + k * distance + i * kLanes);
    for (int row = 0; row < kRows; ++row) {
      Vector factor = factors[row][k];
      // Fetched once: the compiler would do so in each of the products.
      if constexpr (kVectors > 1 && kRows > 2) HLO_DISPATCH_IN_REGISTER(factor);
      for (int i = 0; i < kVectors; ++i) total[row][i] += factor * wide[i];
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) Store(sums + row * sums_distance + i * kLanes, total[row][i]);
  }
}

// The same along whole vectors of columns. What is needed next lies `ahead` weights from what is worked on.
template <int kRows, int kRowsOfWeights, typename W>
void AddRows(const Piece& piece, const float* source, const W* weights, int64_t ahead, float* sums) {
  constexpr int kVectors = 2;  // a factor is fetched once for both
  Vector factors[kRows][kRowsOfWeights];
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kRowsOfWeights; ++k) factors[row][k] = Repeated(source[row * piece.source_distance + k]);
  }
  const int64_t distance = piece.weights_distance;
  int64_t column = 0;
  for (; column + kColumnStep <= piece.columns; column += kColumnStep) {
    for (int k = 0; k < kRowsOfWeights; ++k) {
      const W* next = weights + k * distance + ahead + column;
      for (int64_t i = 0; i < kColumnStep; i += kLine / static_cast<int64_t>(sizeof(W))) Fetch(next + i);
    }
    for (int64_t i = column; i < column + kColumnStep; i += kVectors * kLanes) {
      AddVectors<kRows, kRowsOfWeights, kVectors>(factors, weights + i, distance, sums + i, piece.sums_distance);
    }
  }
  for (; column + kLanes <= piece.columns; column += kLanes) {
    AddVectors<kRows, kRowsOfWeights, 1>(factors, weights + column, distance, sums + column, piece.sums_distance);
  }
}

// Calls it with as many rows as there are, of kRows at most.
template <int kRows, int kRowsOfWeights, typename W>
HLO_DISPATCH_INLINE void AddSomeRows(int64_t rows, const Piece& piece, const float* source, const W* weights,
                                     int64_t ahead, float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return AddSomeRows<kRows - 1, kRowsOfWeights>(rows, piece, source, weights, ahead, sums);
  }
  AddRows<kRows, kRowsOfWeights>(piece, source, weights, ahead, sums);
}

// The columns behind the last whole vector.
template <typename W>
void SumLastColumns(const Piece& piece, int64_t begin) {
  const int64_t count = piece.columns - begin;
  for (int64_t first = 0; first < piece.rows; first += kMostRows) {
    const int64_t rows = piece.rows - first < kMostRows ? piece.rows - first : kMostRows;
    const float* source = piece.source + first * piece.source_distance;
    Vector total[kMostRows] = {};
    for (int64_t k = 0; k < piece.depth; ++k) {
      const W* weights = WeightsOf<W>(piece) + k * piece.weights_distance + begin;
      // What lies behind is the next row's, if there is one.
      const Vector wide =
          static_cast<const W*>(piece.end) - weights >= kLanes ? Widened(weights) : WidenedFirst(weights, count);
      for (int64_t row = 0; row < rows; ++row) total[row] += Repeated(source[row * piece.source_distance + k]) * wide;
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* sums = piece.sums + (first + row) * piece.sums_distance + begin;
      for (int64_t i = 0; i < count; ++i) sums[i] = total[row][i];
    }
  }
}

// Worked on in tiles: kTileDepth rows of weights, whose pages are not looked up anew for each of a few columns, and so
// many columns that their sums stay in the first-level cache.
constexpr int64_t kTileDepth = 64;
constexpr int64_t kTileSums = 4096;

// One tile: `columns` of them from `column` on, rows of weights [first, last). Its sums lie one row behind the other.
template <typename W>
HLO_DISPATCH_INLINE void AddTile(const Piece& piece, int64_t column, int64_t columns, int64_t first, int64_t last,
                                 int64_t whole, float* sums) {
  Piece tile = piece;
  tile.columns = columns;
  tile.sums_distance = columns;
  const auto add = [&](auto* add_rows, int64_t k, int64_t ahead) {
    const W* weights = WeightsOf<W>(piece) + k * piece.weights_distance + column;
    for (int64_t row = 0; row < piece.rows; row += kMostRows) {
      const float* source = piece.source + row * piece.source_distance + k;
      add_rows(piece.rows - row, tile, source, weights, row == 0 ? ahead : 0, sums + row * columns);
    }
  };
  int64_t k = first;
  for (; k + kDepth <= last; k += kDepth) {
    // What comes next: the next rows of the tile, the first ones of the next tile, or of the first one further down.
    int64_t ahead = kDepth * piece.weights_distance;
    if (k + 2 * kDepth > last && column + columns < whole) {
      ahead = (first - k) * piece.weights_distance + columns;
    } else if (k + 2 * kDepth > last) {
      ahead = piece.depth - last < kDepth ? 0 : (last - k) * piece.weights_distance - column;
    }
    add(AddSomeRows<kMostRows, kDepth, W>, k, ahead);
  }
  for (; k < last; ++k) add(AddSomeRows<kMostRows, 1, W>, k, 0);
}

template <typename W>
void ColumnsTogether(const Piece& piece) {
  const int64_t whole = piece.columns / kLanes * kLanes;
  // One row is summed where it is wanted.
  float* room = piece.rows == 1 ? piece.sums : piece.room;
  for (int64_t i = 0; i < piece.rows * whole; ++i) room[i] = 0.0f;
  const int64_t width =
      kTileSums / piece.rows < kColumnStep ? kColumnStep : kTileSums / piece.rows / kColumnStep * kColumnStep;
  for (int64_t first = 0; first < piece.depth; first += kTileDepth) {
    const int64_t last = piece.depth - first < kTileDepth ? piece.depth : first + kTileDepth;
    for (int64_t column = 0; column < whole; column += width) {
      const int64_t columns = whole - column < width ? whole - column : width;
      AddTile<W>(piece, column, columns, first, last, whole, room + column * piece.rows);
    }
  }
  for (int64_t column = 0; column < whole && piece.rows > 1; column += width) {
    const int64_t columns = whole - column < width ? whole - column : width;
    for (int64_t row = 0; row < piece.rows; ++row) {
      const float* from = room + column * piece.rows + row * columns;
      float* to = piece.sums + row * piece.sums_distance + column;
      for (int64_t i = 0; i < columns; i += kLanes) Store(to + i, Load(from + i));
    }
  }
  if (whole < piece.columns) SumLastColumns<W>(piece, whole);
}

// --- rows side by side ------------------------------------------------------------------------------------------

// The sums of kRows rows and kColumns columns, each in kParts parts. What is needed next lies `ahead` weights from what
// is worked on.
template <int kRows, int kColumns, int kParts, typename W>
HLO_DISPATCH_INLINE void Dots(const Piece& piece, const float* source, const W* weights, int64_t ahead, float* sums) {
  Vector total[kParts][kRows][kColumns] = {};
  const auto add = [&](int part, int64_t k) {
    Vector wide[kColumns];
    for (int column = 0; column < kColumns; ++column) {
      const W* from = weights + column * piece.weights_distance + k;
      if (k * static_cast<int64_t>(sizeof(W)) % kLine == 0) Fetch(from + ahead);
      wide[column] = Widened(from);
    }
    for (int row = 0; row < kRows; ++row) {
      const Vector factors = Load(source + row * piece.source_distance + k);
      for (int column = 0; column < kColumns; ++column) total[part][row][column] += factors * wide[column];
    }
  };
  int64_t k = 0;
  for (; k + kParts * kLanes <= piece.depth; k += kParts * kLanes) {
    for (int part = 0; part < kParts; ++part) add(part, k + part * kLanes);
  }
  for (; k + kLanes <= piece.depth; k += kLanes) add(0, k);
  const int64_t rest = piece.depth - k;
  if (rest > 0) {
    for (int column = 0; column < kColumns; ++column) {
      const Vector wide = WidenedFirst(weights + column * piece.weights_distance + k, rest);
      for (int row = 0; row < kRows; ++row) {
        total[0][row][column] += LoadFirst(source + row * piece.source_distance + k, rest) * wide;
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      for (int part = 1; part < kParts; ++part) total[0][row][column] += total[part][row][column];
      sums[row * piece.sums_distance + column] = Total(total[0][row][column]);
    }
  }
}

// How many columns are worked on at once, and in how many parts one row's sums are. Weights of eight bits take several
// instructions each, and share the source's; wider ones take as long as memory does, which is quickest read in one go.
template <typename W>
constexpr int kColumnsAtOnce = sizeof(W) == 1 ? kDotColumns : 1;
template <int kRows, typename W>
constexpr int kPartsAtOnce = sizeof(W) > 1 && kRows < kDotRows ? 2 : 1;

// Calls it with as many rows and columns as there are, of kRows and kColumnsAtOnce at most.
template <int kRows, typename W>
void DotsOfSome(int64_t rows, int64_t columns, const Piece& piece, const float* source, const W* weights, int64_t ahead,
                float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return DotsOfSome<kRows - 1>(rows, columns, piece, source, weights, ahead, sums);
  }
  constexpr int kParts = kPartsAtOnce<kRows, W>;
  if (columns >= kColumnsAtOnce<W>) {
    return Dots<kRows, kColumnsAtOnce<W>, kParts>(piece, source, weights, ahead, sums);
  }
  for (int64_t column = 0; column < columns; ++column) {
    Dots<kRows, 1, kParts>(piece, source, weights + column * piece.weights_distance, 0, sums + column);
  }
}

template <typename W>
void RowsTogether(const Piece& piece) {
  for (int64_t column = 0; column < piece.columns; column += kColumnsAtOnce<W>) {
    const W* weights = WeightsOf<W>(piece) + column * piece.weights_distance;
    const int64_t columns = piece.columns - column;
    // Behind the last columns there is nothing to fetch.
    const int64_t ahead = columns < 2 * kColumnsAtOnce<W> ? 0 : kColumnsAtOnce<W> * piece.weights_distance;
    for (int64_t row = 0; row < piece.rows; row += kDotRows) {
      DotsOfSome<kDotRows>(piece.rows - row, columns, piece, piece.source + row * piece.source_distance, weights,
                           row == 0 ? ahead : 0, piece.sums + row * piece.sums_distance + column);
    }
  }
}

template <typename W>
constexpr Loops kLoops = {ColumnsTogether<W>, RowsTogether<W>};

Arithmetic ArithmeticNamed(const char* name) { return {name, kLoops<int8_t>, kLoops<Bf16>, kLoops<float>}; }

}  // namespace
}  // namespace hlo_dispatch::narrow

#endif  // HLO_DISPATCH_NARROW_LOOPS_H_
