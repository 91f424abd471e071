"""Refusal sentences: for each sentence of the match package that no golden and no mutation gives, a module that does.

The refused instruction is called `op`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from refusal_modules import (
    MAXIMUM,
    attention,
    convolution,
    dot,
    entry,
    fused,
    gradient,
    integer_convolution,
    pooling,
    reduction,
)


class Case(NamedTuple):
    """A module in which `op` is refused."""

    op_kind: str
    """Or the name of the table's entry that is no anchor."""
    code: str
    sentence: str
    text: str


class EntryCase(NamedTuple):
    """A module in which another entry of the table would refuse `op`."""

    op_kind: str
    code: str
    sentence: str
    text: str
    changes: dict[str, Any]
    """What is different in the shipped entries; nothing: there is none for the op kind."""


_TWO_DIMENSIONS = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2,3}, rhs_contracting_dims={2,3}"
_FIVE = "lhs_batch_dims={0,1,2,3,4}, rhs_batch_dims={0,1,2,3,4}"
_PAIRS = "2,2,2,2,2"

ATTENTIONS = (
    Case(
        "attention",
        "attention-step",
        "scores are kept where a mask in memory is false, and the kernel keeps them where it is true",
        attention(
            more="m = pred[2,9,11] parameter(3)\nno = f32[] constant(-1e9)",
            steps="lost = f32[2,9,11] broadcast(no), dimensions={}\nt = f32[2,9,11] select(m, lost, s)",
            last="t",
        ),
    ),
    Case(
        "attention",
        "attention-step",
        "%s.2 is read, and computed from the scores",
        attention(steps="t = f32[2,9,11] add(s, s)", last="t"),
    ),
    Case(
        "attention",
        "attention-softmax",
        "nothing divides %y by the sum over all keys",
        attention(weights="bitcast(op)"),
    ),
    Case(
        "attention",
        "layout-unsupported",
        "the scores' elements change places",
        attention(
            q="f32[2,4,8]",
            k="f32[2,6,8]",
            v="f32[2,3,8]",
            y="f32[2,8,8]",
            computed="2,4,6",
            scores="2,8,3",
            steps="n = f32[2,4,6]{1,2,0} negate(s)\nt = f32[2,8,3] bitcast(n)",
            last="t",
        ),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "the keys' dimensions do not lie behind one another in %v",
        attention(
            k="f32[2,3,4,8]{3,1,2,0}",
            v="f32[2,3,4,8]",
            scores="2,9,3,4",
            keys=(2, 3),
            first="lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={3}",
            second="lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2,3}, rhs_contracting_dims={1,2}",
        ),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "the heads' dimensions do not lie behind one another in %y",
        attention(v="f32[2,11,3,4]", y="f32[2,9,3,4]{2,3,1,0}"),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "%k has several dimensions there",
        attention(q="f32[2,9,3,4]", k="f32[2,11,3,4]{2,3,1,0}", first=_TWO_DIMENSIONS),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "%s.2: its operands share the dimensions that the second product sums over",
        attention(
            q="f32[2,11,9,8]",
            k="f32[2,11,8]",
            scores="2,11,9",
            keys=(1,),
            first="lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}",
            second="lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        ),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "%s.2: its dimensions cannot be told apart behind it",
        attention(
            q="f32[2,6,8]",
            k="f32[2,4,8]",
            v="f32[2,3,8]",
            y="f32[2,8,8]",
            computed="2,6,4",
            scores="2,8,3",
            steps="t = f32[2,8,3] bitcast(s)",
            last="t",
        ),
    ),
    Case(
        "attention",
        "rank-unsupported",
        "5 batch dimensions",
        attention(
            f"f32[{_PAIRS},9,8]{{6,5,0,1,2,3,4}}",
            f"f32[{_PAIRS},11,8]",
            f"f32[{_PAIRS},11,8]",
            f"f32[{_PAIRS},9,8]",
            scores=f"{_PAIRS},9,11",
            keys=(6,),
            first=f"{_FIVE}, lhs_contracting_dims={{6}}, rhs_contracting_dims={{6}}",
            second=f"{_FIVE}, lhs_contracting_dims={{6}}, rhs_contracting_dims={{5}}",
        ),
    ),
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
    Case(
        "integer",
        "base-dilation",
        "the input is dilated by 2",
        integer_convolution("s8[1,8,8,4]", "s8[3,3,4,8]", "[1,13,13,8]", "size=3x3 lhs_dilate=2x2"),
    ),
    Case(
        "integer",
        "dtype-unsupported",
        "weights of u8 no kernel takes",
        integer_convolution(
            "s8[1,8,8,4]",
            "u8[3,3,4,8]",
            "[1,6,6,8]",
            "size=3x3",
            "a, b",
            "a = s32[1,8,8,4] convert(x)\nb = s32[3,3,4,8] convert(w)",
        ),
    ),
    Case(
        "integer",
        "layout-unsupported",
        "an operand's integers do not lie as the convolution reads them",
        integer_convolution(
            "s8[1,4,8,8]",
            "s8[3,3,4,8]",
            "[1,6,6,8]",
            "size=3x3",
            "t, w",
            "c0 = s32[1,4,8,8] convert(x)\nt = s32[1,8,8,4] transpose(c0), dimensions={0,2,3,1}",
        ),
    ),
    Case(
        "forward",
        "batch-groups",
        "the convolution's batch groups are themselves in feature groups",
        convolution(
            "f32[1,8,2,4]", "f32[3,2,2,8]", "f32[1,6,2,8]", "size=3x2 lhs_dilate=1x2", more=", feature_group_count=2"
        ),
    ),
    Case(
        "forward",
        "layout-unsupported",
        "the groups and the channels of an operand do not lie behind one another",
        convolution("f32[1,2,8,4]", "f32[2,3,4,8]", "f32[1,2,6,8]", "size=2x3 lhs_dilate=2x1"),
    ),
    Case(
        "forward",
        "negative-padding",
        "padding -1 crops the image",
        entry("""k = f32[8,3,3,4] parameter(0)
        w = f32[5,5,4,1] parameter(1)
        x = f32[8,3,3,4] reverse(k), dimensions={1,2}
        op = f32[8,3,3,1] convolution(x, w), window={size=5x5 pad=1_3x1_3 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f
        ROOT r = f32[8,3,3,1] negate(op)"""),
    ),
    Case(
        "transposed",
        "negative-padding",
        "padding 3_1 reaches beyond what a window of 3 turns into results",
        convolution("f32[1,8,8,4]", "f32[3,3,4,8]", "f32[1,17,17,8]", "size=3x3 pad=3_1x3_1 lhs_dilate=2x2"),
    ),
    Case(
        "product",
        "rank-unsupported",
        "11 batch dimensions",
        dot(
            "f32[2,2,2,2,2,2,2,2,2,2,2,3,4]",
            "f32[2,2,2,2,2,2,2,2,2,2,2,4,5]",
            "f32[2,2,2,2,2,2,2,2,2,2,2,3,5]",
            "lhs_batch_dims={0,1,2,3,4,5,6,7,8,9,10}, rhs_batch_dims={0,1,2,3,4,5,6,7,8,9,10}, "
            "lhs_contracting_dims={12}, rhs_contracting_dims={11}",
        ),
    ),
    Case(
        "product",
        "dot-dimensions",
        "an operand's dimensions do not lie behind one another",
        dot("f32[2,64,4]", "f32[64,32]", "f32[2,4,32]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ),
    Case(
        "integer_product",
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
    Case(
        "weights_gradient",
        "rank-unsupported",
        "4 spatial dimensions; the kernel takes 1 to 3",
        gradient("f32[16,4,4,4,4,2]", "f32[4,4,4,4,2,32]", "f32[16,1,1,1,1,32]", "size=4x4x4x4"),
    ),
    Case(
        "weights_gradient",
        "batch-groups",
        "the gradient's groups are themselves in groups",
        gradient(dy="f32[8,8,1,32]", more=", feature_group_count=2"),
    ),
    Case(
        "weights_gradient",
        "base-dilation",
        "the input is dilated by 2",
        gradient(window="size=8x8 lhs_dilate=2x2", y="f32[16,8,8,32]"),
    ),
    Case(
        "weights_gradient",
        "negative-padding",
        "padding -1 crops the input",
        gradient(window="size=8x8 pad=-1_1x-1_1", y="f32[16,1,1,32]"),
    ),
    Case(
        "weights_gradient",
        "negative-padding",
        "the last 1 positions of the input are not used",
        gradient("f32[16,10,10,2]", window="size=8x8", y="f32[16,2,2,32]"),
    ),
    Case(
        "weights_gradient",
        "layout-unsupported",
        "the groups and the channels of an operand do not lie behind one another",
        entry("""x = f32[2,2,8,4] parameter(0)
        dy = f32[2,8,2,6] parameter(1)
        xt = f32[4,2,8,2] transpose(x), dimensions={3,1,2,0}
        op = f32[4,2,3,6] convolution(xt, dy), window={size=2x8 pad=0_0x1_1 lhs_dilate=2x1}, dim_labels=b01f_01io->b01f
        ROOT r = f32[4,2,3,6] negate(op)"""),
    ),
    Case(
        "weights_gradient",
        "window-reversal",
        "only one of the operands is read backwards",
        gradient(window="size=8x8 pad=1_1x1_1 rhs_reversal=1x1"),
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
        {"dtypes": ("f32",)},
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
