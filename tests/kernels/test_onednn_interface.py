"""Our declaration of oneDNN's C interface against oneDNN's own headers, where those are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.any_python, pytest.mark.any_processor]

KERNELS = Path(__file__).parents[2] / "kernels"
HEADERS = Path(sys.prefix) / "include"

# Ours on the left, oneDNN's on the right.
CONSTANTS = {
    "kMaximumRank": "DNNL_MAX_NDIMS",
    "kSuccess": "dnnl_success",
    "kOutOfMemory": "dnnl_out_of_memory",
    "kInvalidArguments": "dnnl_invalid_arguments",
    "kUnimplemented": "dnnl_unimplemented",
    "kLastImplementationReached": "dnnl_last_impl_reached",
    "kRuntimeError": "dnnl_runtime_error",
    "kNotRequired": "dnnl_not_required",
    "kF16": "dnnl_f16",
    "kBF16": "dnnl_bf16",
    "kF32": "dnnl_f32",
    "kCpu": "dnnl_cpu",
    "kInOrder": "dnnl_stream_in_order",
    "kForwardInference": "dnnl_forward_inference",
    "kFormatAny": "dnnl_format_tag_any",
    "kFormatBlocked": "dnnl_blocked",
    "kScratchpadUser": "dnnl_scratchpad_mode_user",
    "kFloatMathStrict": "dnnl_fpmath_mode_strict",
    "kQueryImplementation": "dnnl_query_impl_info_str",
    "kQueryStrides": "dnnl_query_strides",
    "kQueryScratchpad": "dnnl_query_scratchpad_md",
    "kQueryArgument": "dnnl_query_exec_arg_md",
    "kQueryRank": "dnnl_query_ndims_s32",
    "kQueryPaddedSizes": "dnnl_query_padded_dims",
    "kQueryFormatKind": "dnnl_query_format_kind",
    "kQueryInnerBlockCount": "dnnl_query_inner_nblks_s32",
    "kQueryInnerBlockSizes": "dnnl_query_inner_blks",
    "kQueryInnerBlockDimensions": "dnnl_query_inner_idxs",
    "kConvolutionDirect": "dnnl_convolution_direct",
    "kDeconvolutionDirect": "dnnl_deconvolution_direct",
    "kPoolingMax": "dnnl_pooling_max",
    "kPoolingAverageIncludingPadding": "dnnl_pooling_avg_include_padding",
    "kArgumentSource": "DNNL_ARG_SRC",
    "kArgumentDestination": "DNNL_ARG_DST",
    "kArgumentWeights": "DNNL_ARG_WEIGHTS",
    "kArgumentBias": "DNNL_ARG_BIAS",
    "kArgumentScratchpad": "DNNL_ARG_SCRATCHPAD",
    "kArgumentSourceGradient": "DNNL_ARG_DIFF_SRC",
    "kArgumentDestinationGradient": "DNNL_ARG_DIFF_DST",
    "kArgumentWeightsGradient": "DNNL_ARG_DIFF_WEIGHTS",
    "kArgumentBinaryOperand": "DNNL_ARG_SRC_1",
    "kArgumentSources": "DNNL_ARG_MULTIPLE_SRC",
}

COMPARISON = r"""
#include <cstddef>
#include <type_traits>
#include <oneapi/dnnl/dnnl.h>
#include "onednn/api.h"

namespace ours = hlo_dispatch::onednn;

// Two types are passed alike if both are pointers, or are numbers of one kind and size.
template <typename A, typename B>
constexpr bool Alike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) return std::is_pointer_v<A> && std::is_pointer_v<B>;
  else return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
template <typename A, typename B> struct Same : std::false_type {};
template <typename R, typename... P, typename S, typename... Q>
struct Same<R (*)(P...), S (*)(Q...)> {
  static constexpr bool Compare() {
    if constexpr (sizeof...(P) != sizeof...(Q)) return false;
    else return Alike<R, S>() && (Alike<P, Q>() && ...);
  }
  static constexpr bool value = Compare();
};
#define COMPARE(result, name, parameters) \
  static_assert(Same<decltype(ours::Functions::name), decltype(&dnnl_##name)>::value, #name);
HLO_DISPATCH_ONEDNN_FUNCTIONS(COMPARE)

static_assert(sizeof(ours::Version) == sizeof(dnnl_version_t));
static_assert(offsetof(ours::Version, cpu_runtime) == offsetof(dnnl_version_t, cpu_runtime));
static_assert(sizeof(ours::Argument) == sizeof(dnnl_exec_arg_t));
static_assert(offsetof(ours::Argument, memory) == offsetof(dnnl_exec_arg_t, memory));
"""


def algorithms() -> dict[str, str]:
    """The table of post_ops.cc, as pairs of our constant and oneDNN's."""
    source = (KERNELS / "onednn" / "post_ops.cc").read_text()
    pairs = re.findall(r'\{"(\w+)", k(Eltwise|Binary)(\w+)\}', source)
    return {f"k{kind}{ours}": f"dnnl_{kind.lower()}_{name}" for name, kind, ours in pairs}


def test_declarations_agree_with_onednns_headers(tmp_path):
    if not (HEADERS / "oneapi" / "dnnl" / "dnnl.h").exists():
        pytest.skip("oneDNN's headers are not installed (pip install onednn-devel)")
    compiler = shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    constants = CONSTANTS | algorithms()
    assert len(constants) >= len(CONSTANTS) + 33  # 21 eltwise and 12 binary algorithms
    checks = [f'static_assert(int(ours::{ours}) == int({theirs}), "{ours}");' for ours, theirs in constants.items()]
    file = tmp_path / "comparison.cc"
    file.write_text(COMPARISON + "\n".join(checks) + "\n")
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wno-enum-compare", f"-I{HEADERS}", f"-I{KERNELS}", str(file)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
