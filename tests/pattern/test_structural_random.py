"""Random programs and twenty patterns: every match computes what its expression says, in near-linear time."""

from __future__ import annotations

import random
import time
from collections import Counter

import numpy as np
import pytest
from structures import flat_graph, without_shipped, write_table

from hlo_dispatch.analysis.scalar_constants import apply, scalar_constant
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.structural.finder import StructuralFinder
from hlo_dispatch.pattern import Table
from hlo_dispatch.pattern.expression import ActivationCall, Capture, Number, Operation, Term

# Steps of a random program: how many values each takes, and the instructions it becomes.
STEPS = {
    **{opcode: (1, [f"{opcode}({{a}})"]) for opcode in ("exponential", "tanh", "negate", "abs", "logistic")},
    **{opcode: (2, [f"{opcode}({{a}}, {{b}})"]) for opcode in ("add", "multiply", "subtract", "maximum", "divide")},
    "square": (1, ["multiply({a}, {a})"]),
    "relu": (1, ["maximum({a}, zeros)"]),
    "clip": (1, ["clamp(zeros, {a}, sixes)"]),
    "swish": (1, ["logistic({a})", "multiply({last}, {a})"]),
    "leaky_relu": (1, ["multiply({a}, tenths)", "maximum({a}, {last})"]),
    "fused": (3, ["multiply({a}, {b})", "add({c}, {last})"]),
    "sums": (2, ["add({a}, {b})", "subtract({a}, {b})", "multiply({last}, {before})"]),
    "share": (2, ["add({b}, {a})", "divide({a}, {last})"]),
}
CONSTANTS = {"zeros": 0, "sixes": 6, "tenths": 0.1}


def elementwise(count: int, seed: int = 11) -> str:
    """A random program of elementwise instructions on f32[64]."""
    chance = random.Random(seed)
    values = [f"p{number}" for number in range(8)]
    lines = [f"{name} = f32[64] parameter({number})" for number, name in enumerate(values)]
    for name, number in CONSTANTS.items():
        lines.append(f"one_{name} = f32[] constant({number})")
        lines.append(f"{name} = f32[64] broadcast(one_{name}), dimensions={{}}")
    unused = list(values)
    while len(lines) < count:
        wanted, instructions = STEPS[chance.choice(list(STEPS))]
        taken = []
        for _ in range(wanted):
            # Most values are used once, as in real programs: what is used twice no pattern may cover.
            is_fresh = unused and chance.random() < 0.8
            taken.append(unused.pop(chance.randrange(len(unused))) if is_fresh else chance.choice(values))
        made = [""]
        for instruction in instructions:
            names = dict(zip("abc", taken, strict=False)) | {"last": made[-1], "before": made[-2] if made[1:] else ""}
            made.append(f"v{len(lines)}")
            lines.append(f"{made[-1]} = f32[64] {instruction.format(**names)}")
        values.append(made[-1])
        unused.append(made[-1])
    lines[-1] = "ROOT " + lines[-1]
    return "\n".join(lines)


PATTERNS = """
    swish(x, beta) + y | relu(x) * y | x * y + tanh(z) | gelu_erf(x) + y | square(x - y) | exponential(x - y) / z
    clip(x, 0, 6) * y | (x + y) * (x - y) | abs(x) - abs(y) | sigmoid(x) * tanh(y) | maximum(x * y, z)
    -x * exponential(y) | x / (x + y) | mish(x) - y
    maximum(tanh(x), tanh(y)) | negate(x - y * z) | tanh(x * y + z) | gelu_tanh(x + y)
    elu(x, slope) * y | leaky_relu(x, slope) + tanh(y)
"""


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of all the patterns, each with a kernel of its own."""
    folder = tmp_path_factory.mktemp("twenty")
    expressions = [text.strip() for line in PATTERNS.strip().splitlines() for text in line.split("|")]
    assert len(expressions) == 20
    text = ""
    for number, expression in enumerate(expressions):
        table = write_table(folder, expression, priority=number + 1).read_text()
        head, entry = table.split("patterns:\n")
        body = entry.replace("  mine:", f"  mine_{number}:").replace("mine.kernel", f"mine.kernel_{number}")
        kernel = head.split("kernels:\n")[1].replace("mine.kernel", f"mine.kernel_{number}")
        text = text.replace("patterns:\n", kernel + "patterns:\n") + body if text else (
            f"version: 1\nkernels:\n{kernel}patterns:\n{body}"
        )  # fmt: skip
    table = folder / "twenty.yaml"
    table.write_text(text)
    return without_shipped(table)


def value(term: Term, match: Match, table: Table, captured: dict[str, np.ndarray]) -> np.ndarray:
    """What the expression computes from the captured values."""
    if isinstance(term, Capture):
        return captured[term.name]
    if isinstance(term, Number):
        return np.float64(term.value)
    if isinstance(term, ActivationCall):
        activation = table.activation(term.activation)
        given = [p if isinstance(p, float) else match.attributes()[p] for p in term.parameters]
        numbers = dict(zip([parameter.name for parameter in activation.parameters], given, strict=True))
        return activation.formula.evaluate({"x": value(term.argument, match, table, captured), **numbers})
    assert isinstance(term, Operation)
    arguments = [value(argument, match, table, captured) for argument in term.arguments]

    class Instruction:
        opcode = term.meaning.opcode

    return apply(Instruction(), arguments)


def test_every_match_computes_what_its_expression_says(twenty: Table) -> None:
    found = Counter(name for seed in range(20) for name in checked_matches(twenty, seed))
    assert len(found) > 10, found


def checked_matches(twenty: Table, seed: int) -> list[str]:
    """Compare every match in one random program with its expression; the patterns' names."""
    graph = flat_graph(elementwise(300, seed))
    numbers = np.random.default_rng(seed).standard_normal((8, 64))
    values = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            arguments = [values[operand] for operand in node.operands]
            constant = scalar_constant(node)
            if constant is not None:
                values[node] = np.full(64, constant)
            elif node.opcode == "parameter":
                values[node] = numbers[node.proto.parameter_number]
            else:
                values[node] = apply(node, arguments)
        matches = StructuralFinder(twenty).find(graph).matches
        for match in matches:
            (expression,) = match.entry.spellings
            captured = {name: values[match.operands[role].node] for role, name in match.entry.operands.items()}
            got, wanted = value(expression.root, match, twenty, captured), values[match.output]
            finite = np.isfinite(got) & np.isfinite(wanted)
            np.testing.assert_allclose(got[finite], wanted[finite], 1e-5, 1e-7, err_msg=match.name)
    return [match.name for match in matches]


@pytest.mark.timing
def test_matching_is_near_linear(twenty: Table) -> None:
    finder = StructuralFinder(twenty)
    seconds = {}
    for count in (1_000, 10_000):
        graph = flat_graph(elementwise(count))
        finder.find(graph)  # recognises each function once
        start = time.perf_counter()
        found = finder.find(graph)
        seconds[count] = time.perf_counter() - start
        assert found.matches
    print(f"{seconds[1_000] * 1e3:.1f} ms for 1,000, {seconds[10_000] * 1e3:.1f} ms for 10,000")
    assert seconds[10_000] < 30 * seconds[1_000]
    assert seconds[10_000] < 5
