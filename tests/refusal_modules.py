"""HLO text of modules in which an instruction called `op` is refused: builders by the kind of the instruction."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A module in which `op` is refused."""

    op_kind: str
    """Or the name of the table's entry that is no anchor."""
    code: str
    sentence: str
    text: str


def entry(body: str, before: str = "") -> str:
    lines = "\n  ".join(line.strip() for line in body.strip().splitlines())
    return f"{before}ENTRY e {{\n  {lines}\n}}"


def convolution(x: str, w: str, y: str, window: str, *, more: str = "", labels: str = "b01f_01io->b01f") -> str:
    """A convolution."""
    return entry(f"""x = {x} parameter(0)
        w = {w} parameter(1)
        op = {y} convolution(x, w), window={{{window}}}, dim_labels={labels}{more}
        ROOT r = {y} negate(op)""")


def integer_convolution(
    x: str, w: str, y: str, window: str, reads: str = "x, w", between: str = "", *, more: str = "",
    labels: str = "b01f_01io->b01f",
) -> str:  # fmt: skip
    """A convolution of integers whose sums become numbers."""
    return entry(f"""x = {x} parameter(0)
        w = {w} parameter(1)
        {between}
        op = s32{y} convolution({reads}), window={{{window}}}, dim_labels={labels}{more}
        c = f32{y} convert(op)
        ROOT r = f32{y} negate(c)""")


ADD = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
"""
MAXIMUM = ADD.replace("add(", "maximum(")


def reduction(x: str, y: str, dimensions: str, start: int = 0) -> str:
    """A sum over some dimensions."""
    return entry(
        f"""x = {x} parameter(0)
        start = f32[] constant({start})
        op = {y} reduce(x, start), dimensions={{{dimensions}}}, to_apply=add
        ROOT r = {y} negate(op)""",
        ADD,
    )


def pooling(x: str, y: str, window: str, start: str = "-inf") -> str:
    """A maximum pooling."""
    return entry(
        f"""x = {x} parameter(0)
        start = f32[] constant({start})
        op = {y} reduce-window(x, start), window={{{window}}}, to_apply=add
        ROOT r = {y} negate(op)""",
        MAXIMUM,
    )


def fused(parameters: str, body: str, result: str, before: str = "") -> str:
    """A fusion whose last instruction is `op`."""
    shapes = parameters.split()
    lines = "\n  ".join(f"p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes))
    names = ", ".join(f"p{number}" for number in range(len(shapes)))
    return f"""{before}f {{
  {lines}
  {body}
}}
ENTRY e {{
  {lines}
  ROOT r = {result} fusion({names}), kind=kLoop, calls=f
}}"""


def dot(x: str, w: str, y: str, dimensions: str, between: str = "", operands: str = "x, w", behind: str = "") -> str:
    """A product."""
    return entry(f"""x = {x} parameter(0)
        w = {w} parameter(1)
        {between}
        op = {y} dot({operands}), {dimensions}
        {behind or f"ROOT r = {y} negate(op)"}""")


def gradient(
    x: str = "f32[16,8,8,2]", dy: str = "f32[8,8,2,32]", y: str = "f32[16,3,3,32]",
    window: str = "size=8x8 pad=1_1x1_1", more: str = "",
) -> str:  # fmt: skip
    """A gradient with respect to weights, as XLA:CPU writes it: channels and batch have changed places."""

    def transposed(shape: str, order: tuple[int, ...]) -> str:
        kind, _, sizes = shape.rstrip("]").partition("[")
        numbers = sizes.split(",")
        return f"{kind}[{','.join(numbers[place] for place in order)}]"

    rank = x.count(",") + 1
    space = tuple(range(1, rank - 1))
    window_numbers = "".join(str(number) for number in range(rank - 2))
    return entry(f"""x = {transposed(x, (rank - 1, *space, 0))} parameter(0)
        dy = {transposed(dy, (rank - 2, *range(rank - 2), rank - 1))} parameter(1)
        xt = {x} transpose(x), dimensions={{{",".join(map(str, (rank - 1, *space, 0)))}}}
        dyt = {dy} transpose(dy), dimensions={{{",".join(map(str, (*space, 0, rank - 1)))}}}
        op = {y} convolution(xt, dyt), window={{{window}}},
          dim_labels=b{window_numbers}f_{window_numbers}io->b{window_numbers}f{more}
        ROOT r = {y} negate(op)""")


def attention(
    q: str = "f32[2,9,8]",
    k: str = "f32[2,11,8]",
    v: str = "f32[2,11,8]",
    y: str = "f32[2,9,8]",
    *,
    scores: str = "2,9,11",
    first: str = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}",
    second: str = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    keys: tuple[int, ...] = (2,),
    steps: str = "",
    more: str = "",
    last: str = "s",
    weights: str = "divide(op, totals)",
    computed: str = "",
) -> str:
    """An attention; `computed` is the shape of the first product, `steps` lead from it, `s`, to the scores, `last`."""
    sizes = scores.split(",")
    rows = ",".join(size for number, size in enumerate(sizes) if number not in keys)
    kept = ",".join(str(number) for number in range(len(sizes)) if number not in keys)
    reduced = ",".join(map(str, keys))
    return entry(
        f"""q = {q} parameter(0)
        k = {k} parameter(1)
        v = {v} parameter(2)
        {more}
        s = f32[{computed or scores}] dot(q, k), {first}
        {steps}
        least = f32[] constant(-inf)
        peak = f32[{rows}] reduce({last}, least), dimensions={{{reduced}}}, to_apply=maximum
        peaks = f32[{scores}] broadcast(peak), dimensions={{{kept}}}
        d = f32[{scores}] subtract({last}, peaks)
        op = f32[{scores}] exponential(d)
        zero = f32[] constant(0)
        total = f32[{rows}] reduce(op, zero), dimensions={{{reduced}}}, to_apply=add
        totals = f32[{scores}] broadcast(total), dimensions={{{kept}}}
        weights = f32[{scores}] {weights}
        y = {y} dot(weights, v), {second}
        ROOT r = {y} negate(y)""",
        ADD + MAXIMUM.replace("add {", "maximum {"),
    )
