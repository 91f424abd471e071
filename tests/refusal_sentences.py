"""Refusal sentences: for each sentence of the match package that no golden and no mutation gives, a module that does.

The refused instruction is called `op`. `refusal_attentions.py` has those of attention, `refusal_convolutions.py` of
convolutions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hlo_dispatch.pattern.table import Numerics
from refusal_convolutions import CONVOLUTIONS
from refusal_modules import (
    MAXIMUM,
    Case,
    dot,
    entry,
    fused,
    pooling,
    reduction,
)


class EntryCase(NamedTuple):
    """A module in which another entry of the table would refuse `op`."""

    op_kind: str
    code: str
    sentence: str
    text: str
    changes: dict[str, Any]
    """What is different in the shipped entries; nothing: there is none for the op kind."""


_ELEVEN = (
    "lhs_batch_dims={0,1,2,3,4,5,6,7,8,9,10}, rhs_batch_dims={0,1,2,3,4,5,6,7,8,9,10}, "
    "lhs_contracting_dims={12}, rhs_contracting_dims={11}"
)

ROUTINES = (
    Case(
        "product",
        "dot-dimensions",
        "the result's free dimensions do not lie behind one another",
        dot("f64[2,3,8]", "f64[8,4]", "f64[2,3,4]{0,2,1}", "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
    ),
    Case(
        "product",
        "dot-dimensions",
        "neither rows nor columns of the result are contiguous",
        dot(
            "f64[2,3,8]",
            "f64[2,8,4]",
            "f64[2,3,4]{0,2,1}",
            "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        ),
    ),
    Case(
        "eigh",
        "rewrite-unsupported",
        "the tuple of its results is passed on as a whole",
        entry("""x = f32[4,4]{0,1} parameter(0)
        op = (f32[4,4]{0,1}, f32[4]{0}, s32[]) custom-call(x), custom_call_target="lapack_ssyevd_ffi",
          api_version=API_VERSION_TYPED_FFI, backend_config={mode = 86 : ui8, uplo = 76 : ui8}
        ROOT r = ((f32[4,4]{0,1}, f32[4]{0}, s32[]), f32[4,4]{0,1}) tuple(op, x)"""),
    ),
)

ANCHORS = (
    *CONVOLUTIONS,
    Case(
        "product",
        "rank-unsupported",
        "11 batch dimensions",
        dot(
            "f32[2,2,2,2,2,2,2,2,2,2,2,3,4]",
            "f32[2,2,2,2,2,2,2,2,2,2,2,4,5]",
            "f32[2,2,2,2,2,2,2,2,2,2,2,3,5]",
            _ELEVEN,
        ),
    ),
    Case(
        "product",
        "dot-dimensions",
        "an operand's dimensions do not lie behind one another",
        dot("f32[2,64,4]", "f32[64,32]", "f32[2,4,32]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ),
    Case(
        "product",
        "dot-dimensions",
        "an operand's integers do not lie as the product reads them",
        dot(
            "s8[4,2,3]",
            "s8[2,8,3]",
            "s32[4,8]",
            "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
            "c0 = s32[2,8,3] convert(w)\nt = s32[2,3,8] transpose(c0), dimensions={0,2,1}",
            "x, t",
            "ROOT c = f32[4,8] convert(op)",
        ),
    ),
    Case(
        "product",
        "rank-unsupported",
        "11 batch dimensions",
        dot(
            "s8[2,2,2,2,2,2,2,2,2,2,2,3,4]",
            "s8[2,2,2,2,2,2,2,2,2,2,2,4,5]",
            "s32[2,2,2,2,2,2,2,2,2,2,2,3,5]",
            _ELEVEN,
            behind="ROOT c = f32[2,2,2,2,2,2,2,2,2,2,2,3,5] convert(op)",
        ),
    ),
    Case(
        "wrapping_product",
        "dot-dimensions",
        "an operand's dimensions do not lie behind one another",
        dot("s16[2,64,4]", "s16[64,32]", "s32[2,4,32]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ),
    Case(
        "wrapping_product",
        "rank-unsupported",
        "11 batch dimensions",
        dot(
            "s32[2,2,2,2,2,2,2,2,2,2,2,3,4]",
            "s32[2,2,2,2,2,2,2,2,2,2,2,4,5]",
            "s32[2,2,2,2,2,2,2,2,2,2,2,3,5]",
            _ELEVEN,
        ),
    ),
    Case(
        "narrow_product",
        "dot-dimensions",
        "dimensions of the source do not lie behind one another",
        dot(
            "f32[2,64,4]",
            "s8[64,32]",
            "f32[2,4,32]",
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "c = f32[64,32] convert(w)",
            "x, c",
        ),
    ),
    Case(
        "scaling",
        "layout-unsupported",
        "the instruction changes the layout",
        entry("""x = f32[2,8]{0,1} parameter(0)
        y = f32[2,8]{1,0} parameter(1)
        op = f32[2,8]{1,0} multiply(x, y)
        ROOT r = f32[2,8]{1,0} negate(op)"""),
    ),
    Case(
        "scaling",
        "not-in-memory",
        "what it is computed of is not in memory",
        fused(
            "f32[256,256] f32[256,256]",
            "n = f32[256,256] negate(p1)\n  ROOT op = f32[256,256] multiply(p0, n)",
            "f32[256,256]",
        ),
    ),
    Case(
        "rectifying",
        "layout-unsupported",
        "the instruction changes the layout",
        entry("""x = f32[2,8]{0,1} parameter(0)
        zero = f32[] constant(0)
        zeros = f32[2,8]{1,0} broadcast(zero), dimensions={}
        op = f32[2,8]{1,0} maximum(x, zeros)
        ROOT r = f32[2,8]{1,0} negate(op)"""),
    ),
    Case(
        "concatenation",
        "layout-unsupported",
        "what is joined lies in another order than the result",
        entry("""x = f32[2,3]{1,0} parameter(0)
        y = f32[2,3]{0,1} parameter(1)
        op = f32[2,6]{1,0} concatenate(x, y), dimensions={1}
        ROOT r = f32[2,6]{1,0} negate(op)"""),
    ),
    Case(
        "concatenation",
        "not-in-memory",
        "a fusion computes what is joined, and never writes it",
        fused(
            "f32[3,5] f32[3,2]",
            "n = f32[3,2] negate(p1)\n  ROOT op = f32[3,7] concatenate(p0, n), dimensions={1}",
            "f32[3,7]",
        ),
    ),
    Case(
        "whole_window",
        "reducer-unsupported",
        "what is reduced is not summed up from 0",
        reduction("f32[2,3,4,8]", "f32[2,8]", "1,2", start=1),
    ),
    Case(
        "whole_window",
        "rank-unsupported",
        "4 spatial dimensions; the kernel takes 1 to 3",
        reduction("f32[2,3,3,3,3,8]", "f32[2,8]", "1,2,3,4"),
    ),
    Case(
        "whole_window",
        "layout-unsupported",
        "what is no space does not lie behind one another",
        reduction("f32[2,3,4,8]", "f32[2,4,8]", "1"),
    ),
    Case(
        "pooling",
        "reducer-unsupported",
        "the maximum starts from %start",
        pooling("f32[1,8,8,4]", "f32[1,7,7,4]", "size=1x2x2x1", start="0"),
    ),
    Case(
        "pooling",
        "reducer-unsupported",
        "the maximum of more than the window would lose NaN",
        entry(
            """x = f32[1,8,8,4] parameter(0)
        start = f32[] constant(-inf)
        op = f32[1,4,4,4] reduce-window(x, start), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=add
        ROOT r = f32[1,4] reduce(op, start), dimensions={1,2}, to_apply=add""",
            MAXIMUM,
        ),
    ),
    Case(
        "pooling",
        "empty-window",
        "windows along dimension 1 lie in the padding",
        pooling("f32[1,8,8,4]", "f32[1,9,7,4]", "size=1x2x2x1 pad=0_0x2_0x0_0x0_0"),
    ),
    Case(
        "pooling",
        "not-in-memory",
        "the fusion computes what is pooled, and never writes it",
        fused(
            "f32[1,9,8,4] f32[]",
            "s = f32[1,8,8,4] slice(p0), slice={[0:1], [1:9], [0:8], [0:4]}\n  least = f32[] constant(-inf)\n"
            "  ROOT op = f32[1,7,7,4] reduce-window(s, least), window={size=1x2x2x1}, to_apply=add",
            "f32[1,7,7,4]",
            MAXIMUM,
        ),
    ),
    Case(
        "pooling",
        "layout-unsupported",
        "what is no space does not lie behind one another",
        pooling("f32[2,4,4,3,8]", "f32[2,3,4,2,8]", "size=1x2x1x2x1"),
    ),
    Case(
        "pooling",
        "rank-unsupported",
        "4 spatial dimensions; the kernel takes 1 to 3",
        pooling("f32[2,4,4,4,4,8]", "f32[2,3,3,3,3,8]", "size=1x2x2x2x2x1"),
    ),
    Case(
        "pooling",
        "base-dilation",
        "the input is dilated by 2",
        pooling("f32[1,8,8,4]", "f32[1,14,14,4]", "size=1x2x2x1 lhs_dilate=1x2x2x1"),
    ),
    Case(
        "pooling",
        "negative-padding",
        "padding -1_0 crops the input",
        pooling("f32[1,8,8,4]", "f32[1,6,7,4]", "size=1x2x2x1 pad=0_0x-1_0x0_0x0_0"),
    ),
)

_PRODUCT = dot("bf16[4,8]", "bf16[8,5]", "bf16[4,5]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}")
ENTRIES = (
    EntryCase("product", "kernel-unsupported", "the table has no anchor for a dot of op kind product", _PRODUCT, {}),
    EntryCase("product", "dtype-unsupported", "the anchor dot takes f32, not bf16", _PRODUCT, {"dtypes": ("f32",)}),
    EntryCase(
        "product",
        "dtype-unsupported",
        "the anchor dot does not give bf16",
        _PRODUCT.replace("bf16[4,8]", "f32[4,8]").replace("bf16[8,5]", "f32[8,5]"),
        {"dtypes": ("f32",), "numerics": {"f32": Numerics(1e-5, "sums in another order")}},
    ),
    EntryCase(
        "narrow_product",
        "kernel-unsupported",
        "the anchor narrow_product may have no post-op, and needs one",
        dot(
            "f32[4,64]",
            "s8[64,32]",
            "f32[4,32]",
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            """n = f32[32] parameter(2)
            c = f32[64,32] convert(w)
            b = f32[64,32] broadcast(n), dimensions={1}
            m = f32[64,32] multiply(c, b)""",
            "x, m",
        ),
        {"longest_chain": 0},
    ),
)
