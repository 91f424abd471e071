// Functions of one variable on values in the cache: the eltwise post-ops by oneDNN's names (patterns/README.md has the
// formulas), with the functions of oneMKL's vector mathematics.
#ifndef HLO_DISPATCH_COMMON_ACTIVATIONS_H_
#define HLO_DISPATCH_COMMON_ACTIVATIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "common/provider.h"

namespace hlo_dispatch {

// Computes in place. Called from several threads at once.
using Activation = std::function<void(float* values, int64_t count)>;

// Throws Failure(kInvalid), naming `role`, where there is no such algorithm, and Failure(kUnsupported) where the
// library lacks a function.
Activation FindActivation(const Provider& provider, const std::string& algorithm, float alpha, float beta,
                          const std::string& role);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ACTIVATIONS_H_
