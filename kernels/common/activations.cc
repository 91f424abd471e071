#include "common/activations.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/failure.h"
#include "common/processor.h"
#include "common/sigmoid.h"

namespace hlo_dispatch {

namespace {

// oneMKL's modes: an error of at most one unit in the last place, and nobody told of overflows.
constexpr int64_t kHighAccuracy = 0x2;
constexpr int64_t kErrorsIgnored = 0x100;
constexpr int64_t kMode = kHighAccuracy | kErrorsIgnored;

// Values worked on at once, with others between; they stay in the first-level cache.
constexpr int64_t kChunk = 1024;

class Function {
 public:
  Function(const Provider& provider, const char* name) : function_(provider.Symbol<Address>(name)) {}
  void operator()(const float* x, float* y, int64_t count) const { function_(static_cast<int>(count), x, y, kMode); }

 private:
  using Address = void (*)(int count, const float* x, float* y, int64_t mode);
  Address function_;
};

// One that is computed value by value.
template <typename Body>
Activation Each(Body body) {
  return [body](float* x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) x[i] = body(x[i]);
  };
}

// body(x, t, count): with room for `count` values between.
template <typename Body>
Activation InChunks(Body body) {
  return [body](float* x, int64_t count) {
    float between[kChunk];
    for (int64_t begin = 0; begin < count; begin += kChunk) {
      body(x + begin, between, std::min(kChunk, count - begin));
    }
  };
}

// A function of oneMKL's itself.
Activation Plain(const Provider& provider, const char* name) {
  const Function function(provider, name);
  return [function](float* x, int64_t count) { function(x, x, count); };
}

// combine(x, f(argument(x)))
template <typename Argument, typename Combine>
Activation Through(const Provider& provider, const char* name, Argument argument, Combine combine) {
  const Function function(provider, name);
  return InChunks([=](float* x, float* t, int64_t count) {
    for (int64_t i = 0; i < count; ++i) t[i] = argument(x[i]);
    function(t, t, count);
    for (int64_t i = 0; i < count; ++i) x[i] = combine(x[i], t[i]);
  });
}

float Clip(float x, float low, float high) { return x < low ? low : x > high ? high : x; }  // of NaN it is NaN

// t = log(1 + exp(alpha * x)), whatever the size of x.
class Softplus {
 public:
  explicit Softplus(const Provider& provider) : exp_(provider, "vmsExp"), log1p_(provider, "vmsLog1p") {}
  void operator()(const float* x, float* t, int64_t count, float alpha) const {
    for (int64_t i = 0; i < count; ++i) t[i] = -std::fabs(alpha * x[i]);
    exp_(t, t, count);
    log1p_(t, t, count);
    for (int64_t i = 0; i < count; ++i) t[i] += alpha * x[i] < 0.0f ? 0.0f : alpha * x[i];
  }

 private:
  Function exp_, log1p_;
};

Activation Mish(const Provider& provider) {
  const Softplus softplus(provider);
  const Function tanh(provider, "vmsTanh");
  return InChunks([=](float* x, float* t, int64_t count) {
    softplus(x, t, count, 1.0f);
    tanh(t, t, count);
    for (int64_t i = 0; i < count; ++i) x[i] *= t[i];
  });
}

Activation SoftRelu(const Provider& provider, float alpha) {
  const Softplus softplus(provider);
  return InChunks([=](float* x, float* t, int64_t count) {
    softplus(x, t, count, alpha);
    for (int64_t i = 0; i < count; ++i) x[i] = t[i] / alpha;
  });
}

Activation Pow(const Provider& provider, float alpha, float beta) {
  using Address = void (*)(int count, const float* x, float exponent, float* y, int64_t mode);
  const auto pow = provider.Symbol<Address>("vmsPowx");
  return [=](float* x, int64_t count) {
    pow(static_cast<int>(count), x, beta, x, kMode);
    for (int64_t i = 0; i < count; ++i) x[i] *= alpha;
  };
}

const SigmoidArithmetic& OwnArithmetic() {
  return ForThisProcessor(plain::kSigmoidArithmetic, avx2::kSigmoidArithmetic, avx512::kSigmoidArithmetic);
}

Activation Tanh(const Provider& provider) {
  if (provider.is_own()) return OwnArithmetic().tanh;
  return Plain(provider, "vmsTanh");
}

Activation GeluTanh(const Provider& provider) {
  if (provider.is_own()) return OwnArithmetic().gelu_tanh;
  const auto inner = [](float x) { return 0.7978845608f * (x + 0.044715f * x * x * x); };
  return Through(provider, "vmsTanh", inner, [](float x, float t) { return 0.5f * x * (1.0f + t); });
}

// x / (1 + exp(-alpha * x)), or without the x in front.
Activation Logistic(const Provider& provider, float alpha, bool times_x) {
  if (provider.is_own()) {
    const auto sigmoid = OwnArithmetic().sigmoid;
    return [=](float* x, int64_t count) { sigmoid(x, count, alpha, times_x); };
  }
  const auto argument = [alpha](float x) { return -alpha * x; };
  if (times_x) return Through(provider, "vmsExp", argument, [](float x, float t) { return x * (1.0f / (1.0f + t)); });
  return Through(provider, "vmsExp", argument, [](float, float t) { return 1.0f / (1.0f + t); });
}

using Maker = Activation (*)(const Provider&, float alpha, float beta);

const std::map<std::string, Maker>& Makers() {
  static const auto* makers = new std::map<std::string, Maker>{
      {"abs", [](const Provider&, float, float) { return Each([](float x) { return std::fabs(x); }); }},
      {"clip",
       [](const Provider&, float low, float high) { return Each([=](float x) { return Clip(x, low, high); }); }},
      {"clip_v2",  // another gradient, which nobody asks for here
       [](const Provider&, float low, float high) { return Each([=](float x) { return Clip(x, low, high); }); }},
      {"elu",
       [](const Provider& provider, float alpha, float) {
         return Through(
             provider, "vmsExpm1", [](float x) { return x; }, [=](float x, float t) { return x > 0 ? x : alpha * t; });
       }},
      {"exp", [](const Provider& provider, float, float) { return Plain(provider, "vmsExp"); }},
      {"gelu_erf",
       [](const Provider& provider, float, float) {
         return Through(provider, "vmsCdfNorm", [](float x) { return x; }, [](float x, float t) { return x * t; });
       }},
      {"gelu_tanh", [](const Provider& provider, float, float) { return GeluTanh(provider); }},
      {"hardsigmoid", [](const Provider&, float alpha,
                         float beta) { return Each([=](float x) { return Clip(alpha * x + beta, 0.0f, 1.0f); }); }},
      {"hardswish", [](const Provider&, float alpha,
                       float beta) { return Each([=](float x) { return x * Clip(alpha * x + beta, 0.0f, 1.0f); }); }},
      {"linear",
       [](const Provider&, float alpha, float beta) { return Each([=](float x) { return alpha * x + beta; }); }},
      {"log", [](const Provider& provider, float, float) { return Plain(provider, "vmsLn"); }},
      {"logistic", [](const Provider& provider, float, float) { return Logistic(provider, 1.0f, false); }},
      {"mish", [](const Provider& provider, float, float) { return Mish(provider); }},
      {"pow", Pow},
      {"relu",
       [](const Provider&, float alpha, float) {
         if (alpha == 0.0f) return Each([](float x) { return x < 0.0f ? 0.0f : x; });
         return Each([=](float x) { return x > 0.0f ? x : alpha * x; });
       }},
      {"round", [](const Provider& provider, float, float) { return Plain(provider, "vmsRint"); }},
      {"soft_relu", [](const Provider& provider, float alpha, float) { return SoftRelu(provider, alpha); }},
      {"sqrt", [](const Provider& provider, float, float) { return Plain(provider, "vmsSqrt"); }},
      {"square", [](const Provider&, float, float) { return Each([](float x) { return x * x; }); }},
      {"swish", [](const Provider& provider, float alpha, float) { return Logistic(provider, alpha, true); }},
      {"tanh", [](const Provider& provider, float, float) { return Tanh(provider); }},
  };
  return *makers;
}

}  // namespace

Activation FindActivation(const Provider& provider, const std::string& algorithm, float alpha, float beta,
                          const std::string& role) {
  return Named(Makers(), algorithm, role + ".algorithm")(provider, alpha, beta);
}

}  // namespace hlo_dispatch
