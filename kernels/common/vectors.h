// Vectors of floats as the compiler has them, as long as those of the instruction set that it compiles for.
//
// Files named *_isa.cc are compiled once for each instruction set (CMakeLists.txt), which HLO_DISPATCH_ISA is the name
// of: plain, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16. That may be for processors that this one is not, so they
// share no inline function with the rest: what is defined here and in their own headers is in namespaces without a
// name.
#ifndef HLO_DISPATCH_COMMON_VECTORS_H_
#define HLO_DISPATCH_COMMON_VECTORS_H_

#include <immintrin.h>

#include <cstdint>

namespace hlo_dispatch {
namespace {

#define HLO_DISPATCH_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLanes = kVectorBytes / 4;
// Bytes of a line of the cache.
constexpr int64_t kLine = 64;

typedef float Vector __attribute__((vector_size(kVectorBytes)));
typedef int32_t Bits __attribute__((vector_size(kVectorBytes)));
typedef float AnyFloat __attribute__((may_alias, aligned(1)));
typedef uint32_t AnyBits __attribute__((may_alias, aligned(1)));
typedef uint16_t AnyHalf __attribute__((may_alias, aligned(1)));
// Anywhere in memory, and over elements of any type.
typedef float Unaligned __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));

HLO_DISPATCH_INLINE Vector Load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
HLO_DISPATCH_INLINE void Store(float* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }
HLO_DISPATCH_INLINE Vector LoadBf16(const char* from) {
  typedef uint16_t Short __attribute__((vector_size(kVectorBytes / 2), aligned(1), may_alias));
  typedef uint32_t Wide __attribute__((vector_size(kVectorBytes)));
  return reinterpret_cast<Vector>(__builtin_convertvector(*reinterpret_cast<const Short*>(from), Wide) << 16);
}
HLO_DISPATCH_INLINE Vector Repeated(float value) { return value - Vector{}; }
template <typename V>
HLO_DISPATCH_INLINE V Larger(V a, V b) {
  return a > b ? a : b;
}

// So many numbers, less than a vector of them, and zeros.
HLO_DISPATCH_INLINE Vector LoadFirst(const float* from, int64_t count) {
  float values[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return Load(values);
}

// The first whole line of working memory.
template <typename Number>
HLO_DISPATCH_INLINE Number* FirstLine(Number* memory) {
  const int64_t behind = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory) % kLine);
  return memory + (kLine - behind) % kLine / static_cast<int64_t>(sizeof(Number));
}

// The first `count` lanes, and `otherwise` in the rest.
HLO_DISPATCH_INLINE Vector FirstOf(Vector value, int64_t count, float otherwise) {
  Bits numbers;
  for (int i = 0; i < kLanes; ++i) numbers[i] = i;
  return numbers < static_cast<int32_t>(count) ? value : Repeated(otherwise);
}

HLO_DISPATCH_INLINE void StoreFirst(float* to, Vector value, int64_t count) {
#ifdef __AVX512F__
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), reinterpret_cast<__m512>(value));
#else
  __builtin_memcpy(to, &value, static_cast<size_t>(4 * count));
#endif
}

// A vector, or as much of one as there is, and zeros.
HLO_DISPATCH_INLINE Vector LoadNumbers(const float* from, int64_t count) {
  return count >= kLanes ? Load(from) : LoadFirst(from, count);
}
HLO_DISPATCH_INLINE void StoreNumbers(float* to, Vector value, int64_t count) {
  if (count == kLanes)
    Store(to, value);
  else
    StoreFirst(to, value, count);
}

// Each lane with the one that lies `step` from it; of Vector and Bits alike, as what follows.
template <int step, typename V>
HLO_DISPATCH_INLINE V Exchanged(V value) {
  Bits places;
  for (int i = 0; i < kLanes; ++i) places[i] = i ^ step;
  return __builtin_shuffle(value, places);
}

template <int step = kLanes / 2, typename V>
HLO_DISPATCH_INLINE auto Largest(V value) {
  value = Larger(value, Exchanged<step>(value));
  if constexpr (step == 1)
    return value[0];
  else
    return Largest<step / 2>(value);
}

template <int step = kLanes / 2, typename V>
HLO_DISPATCH_INLINE auto Total(V value) {
  value += Exchanged<step>(value);
  if constexpr (step == 1)
    return value[0];
  else
    return Total<step / 2>(value);
}

// Of 2 to the power of a number between -0.5 and 0.5: the best of this degree, but that 0 gives 1.
constexpr float kExponential[] = {
    1.0f, 0.693146967065f, 0.240221197237f, 0.0555071327186f, 0.00967554134312f, 0.0013276472632f};

// 2 to the power of x; 0 where that is no normal number in f32, NaN for NaN. Off by at most 2e-7 of it.
HLO_DISPATCH_INLINE Vector PowerOfTwo(Vector x) {
#ifdef __AVX512F__
  const auto all = static_cast<__mmask16>(-1);
  // Of two operands the second is taken where one is NaN. Far beyond the smallest number, where scaling gives 0.
  const Vector kept = reinterpret_cast<Vector>(
      _mm512_maskz_max_ps(all, reinterpret_cast<__m512>(Repeated(-300.0f)), reinterpret_cast<__m512>(x)));
  const Vector whole = reinterpret_cast<Vector>(
      _mm512_maskz_roundscale_ps(all, reinterpret_cast<__m512>(kept), _MM_FROUND_TO_NEAREST_INT));
  const Vector rest = kept - whole;
#else
  const Vector shift = Repeated(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const Vector shifted = x + shift;
  const Vector rest = x - (shifted - shift);
#endif
  Vector p = rest * kExponential[5] + kExponential[4];
  p = p * rest + kExponential[3];
  p = p * rest + kExponential[2];
  p = p * rest + kExponential[1];
  p = p * rest + kExponential[0];
#ifdef __AVX512F__
  return reinterpret_cast<Vector>(
      _mm512_maskz_scalef_ps(all, reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(whole)));
#else
  const Bits exponent = (reinterpret_cast<Bits>(shifted) << 23) + (127 << 23);
  const Vector power = p * reinterpret_cast<Vector>(exponent);
  return x < Repeated(-126.0f) ? Vector{} : power;
#endif
}

constexpr float kBinaryLogarithm = 1.44269504088896341f;  // of e

// 1 / (1 + exp(-x)). Of -|x| there is no overflow.
HLO_DISPATCH_INLINE Vector Sigmoid(Vector x) {
  const Vector power = PowerOfTwo((x < Vector{} ? x : -x) * kBinaryLogarithm);
  const Vector above = 1.0f / (1.0f + power);
  return x < Vector{} ? power * above : above;
}

// As XLA has it: a quotient of polynomials, of what lies between the points where tanh is 1 in f32.
HLO_DISPATCH_INLINE Vector Tanh(Vector x) {
  const Vector most = Repeated(7.90531110763549805f);
  x = x > most ? most : x;
  x = x < -most ? -most : x;
  const Vector y = x * x;
  Vector p = y * -2.76076847742355e-16f + 2.00018790482477e-13f;
  p = p * y - 8.60467152213735e-11f;
  p = p * y + 5.12229709037114e-08f;
  p = p * y + 1.48572235717979e-05f;
  p = p * y + 6.37261928875436e-04f;
  p = p * y + 4.89352455891786e-03f;
  Vector q = y * 1.19825839466702e-06f + 1.18534705686654e-04f;
  q = q * y + 2.26843463243900e-03f;
  q = q * y + 4.89352518554385e-03f;
  return x * p / q;
}

// Whether a comparison of vectors is true in any lane.
HLO_DISPATCH_INLINE bool HasAny(Bits compared) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(compared), reinterpret_cast<__m512i>(compared)) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256(reinterpret_cast<__m256i>(compared), reinterpret_cast<__m256i>(compared));
#else
  return _mm_movemask_epi8(reinterpret_cast<__m128i>(compared)) != 0;
#endif
}

// A bit for each lane of a comparison of numbers of so many bytes, 4 or 8.
template <int kBytes, typename V>
HLO_DISPATCH_INLINE uint32_t LanesOf(V compared) {
#if defined(__AVX512F__)
  const auto all = reinterpret_cast<__m512i>(compared);
  return kBytes == 8 ? _mm512_test_epi64_mask(all, all) : _mm512_test_epi32_mask(all, all);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(kBytes == 8 ? _mm256_movemask_pd(reinterpret_cast<__m256d>(compared))
                                           : _mm256_movemask_ps(reinterpret_cast<__m256>(compared)));
#else
  return static_cast<uint32_t>(kBytes == 8 ? _mm_movemask_pd(reinterpret_cast<__m128d>(compared))
                                           : _mm_movemask_ps(reinterpret_cast<__m128>(compared)));
#endif
}

HLO_DISPATCH_INLINE float FromBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
HLO_DISPATCH_INLINE uint32_t ToBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

HLO_DISPATCH_INLINE float FromBf16(uint16_t half) { return FromBits(static_cast<uint32_t>(half) << 16); }

HLO_DISPATCH_INLINE uint16_t ToBf16(float value) {
  const uint32_t bits = ToBits(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(value != value ? bits >> 16 | 0x40 : rounded);
}

// As many numbers as a vector has; likewise.
HLO_DISPATCH_INLINE void StoreBf16(AnyHalf* to, Vector value) {
  typedef uint16_t Short __attribute__((vector_size(kVectorBytes / 2), aligned(1), may_alias));
  typedef uint32_t Wide __attribute__((vector_size(kVectorBytes)));
  const Wide bits = reinterpret_cast<Wide>(value);
  const Wide rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  *reinterpret_cast<Short*>(to) = __builtin_convertvector(value != value ? bits >> 16 | 0x40 : rounded, Short);
}

// Without a number in between that is no normal one in f32: XLA's threads may take those for 0.
HLO_DISPATCH_INLINE float FromF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, magnitude = static_cast<uint32_t>(half & 0x7fff);
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000;
  const uint32_t small = ToBits(FromBits(113u << 23 | magnitude << 13) - FromBits(113u << 23));
  return FromBits(sign | (magnitude >= 0x7c00 ? special : magnitude < 0x400 ? small : normal));
}

HLO_DISPATCH_INLINE uint16_t ToF16(float value) {
  const uint32_t bits = ToBits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000)
    half = 0x7e00;
  else if (magnitude >= 0x477ff000)
    half = 0x7c00;  // rounds to 65536 or more
  else if (magnitude < 0x38800000)
    half = ToBits(FromBits(magnitude) + 0.5f) - ToBits(0.5f);
  else
    half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  return static_cast<uint16_t>(sign | half);
}

}  // namespace
}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_VECTORS_H_
