"""Refusal sentences of convolutions, as `refusal_sentences.py` has those of the rest."""

from __future__ import annotations

from refusal_modules import Case, convolution, entry, gradient, integer_convolution

_FOUR = "b0123f_0123io->b0123f"

CONVOLUTIONS = (
    Case(
        "forward",
        "base-dilation",
        "the input is dilated by 2",
        integer_convolution("s8[1,8,8,4]", "s8[3,3,4,8]", "[1,13,13,8]", "size=3x3 lhs_dilate=2x2"),
    ),
    Case(
        "forward",
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
        "forward",
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
        "weights_gradient",
        "rank-unsupported",
        "4 spatial dimensions; the kernel takes 1 to 3",
        gradient("f32[16,4,4,4,4,2]", "f32[4,4,4,4,2,32]", "f32[16,1,1,1,1,32]", "size=4x4x4x4"),
    ),
    Case(
        "weights_gradient",
        "batch-groups",
        "each of the 2 gradients is a sum over 2 images",
        gradient("f32[16,8,8,4]", "f32[8,8,2,32]", more=", feature_group_count=2"),
    ),
    Case(
        "weights_gradient",
        "batch-groups",
        "the gradient's groups are themselves in groups",
        entry("""x = f32[2,2,8,4] parameter(0)
        dy = f32[2,8,1,6] parameter(1)
        xt = f32[4,2,8,2] transpose(x), dimensions={3,1,2,0}
        op = f32[4,2,3,6] convolution(xt, dy), window={size=2x8 pad=0_0x1_1 lhs_dilate=2x1},
          dim_labels=b01f_01io->b01f, feature_group_count=2
        ROOT r = f32[4,2,3,6] negate(op)"""),
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
    Case(
        "forward",
        "rank-unsupported",
        "4 spatial dimensions; the kernel takes 1 to 3",
        convolution("f32[1,4,4,4,4,2]", "f32[1,1,1,1,2,3]", "f32[1,4,4,4,4,3]", "size=1x1x1x1", labels=_FOUR),
    ),
    Case(
        "forward",
        "window-reversal",
        "a window of 3 is read backwards",
        convolution("f32[1,8,8,4]", "f32[3,3,4,8]", "f32[1,6,6,8]", "size=3x3 rhs_reversal=1x1"),
    ),
    Case(
        "forward",
        "base-dilation",
        "the input is dilated by 2",
        convolution("f32[1,8,2,4]", "f32[3,2,4,8]", "f32[1,13,2,8]", "size=3x2 lhs_dilate=2x2"),
    ),
    Case(
        "transposed",
        "rank-unsupported",
        "4 spatial dimensions; the kernel takes 1 to 3",
        convolution(
            "f32[1,4,4,4,4,2]", "f32[3,1,1,1,2,3]", "f32[1,5,4,4,4,3]", "size=3x1x1x1 lhs_dilate=2x1x1x1", labels=_FOUR
        ),
    ),
    Case(
        "transposed",
        "batch-groups",
        "batch_group_count is 2",
        convolution(
            "f32[2,8,8,4]", "f32[3,3,4,8]", "f32[1,13,13,8]", "size=3x3 lhs_dilate=2x2", more=", batch_group_count=2"
        ),
    ),
    Case(
        "transposed",
        "window-reversal",
        "a window of 3 is read backwards",
        convolution("f32[1,8,8,4]", "f32[3,3,4,8]", "f32[1,13,13,8]", "size=3x3 lhs_dilate=2x2 rhs_reversal=1x1"),
    ),
    Case(
        "transposed",
        "base-dilation",
        "the window moves by 2 over a dilated input",
        convolution("f32[1,8,8,4]", "f32[3,3,4,8]", "f32[1,10,10,8]", "size=3x3 stride=2x2 lhs_dilate=3x3"),
    ),
    Case(
        "forward",
        "rank-unsupported",
        "4 spatial dimensions; the kernel takes 1 to 3",
        integer_convolution("s8[1,4,4,4,4,2]", "s8[1,1,1,1,2,3]", "[1,4,4,4,4,3]", "size=1x1x1x1", labels=_FOUR),
    ),
    Case(
        "forward",
        "batch-groups",
        "batch_group_count is 2",
        integer_convolution("s8[2,8,8,4]", "s8[3,3,4,8]", "[1,6,6,8]", "size=3x3", more=", batch_group_count=2"),
    ),
    Case(
        "forward",
        "window-reversal",
        "a window of 3 is read backwards",
        integer_convolution("s8[1,8,8,4]", "s8[3,3,4,8]", "[1,6,6,8]", "size=3x3 rhs_reversal=1x1"),
    ),
    Case(
        "forward",
        "negative-padding",
        "padding -1_-1 crops the input",
        integer_convolution("s8[1,8,8,4]", "s8[3,3,4,8]", "[1,4,4,8]", "size=3x3 pad=-1_-1x-1_-1"),
    ),
)
