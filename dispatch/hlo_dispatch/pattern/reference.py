"""Language reference as Markdown: the generated part of patterns/README.md.

Every table here comes from what the loader itself goes by, so that nothing can be described that is not there.
`hlo-dispatch patterns reference` prints it; a test compares it with what the README has.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from pydantic import BaseModel

from hlo_dispatch.pattern import schema
from hlo_dispatch.pattern.algorithms import ANCHOR_DTYPES, BINARY, ELTWISE, OPCODES
from hlo_dispatch.pattern.constraints import CONSTRAINTS
from hlo_dispatch.pattern.expression import OPERATIONS
from hlo_dispatch.pattern.facts import FACTS
from hlo_dispatch.pattern.op_kinds import OP_KINDS

_HEADING = """\
## Reference

Written by `hlo-dispatch patterns reference` from the schema, from here to the end.

Names are lower case letters, digits and `_`, unique over all tables; a kernel's has parts joined by dots. **bold**
keys are required.
"""
_OWN_KERNELS = """\
A kernel of your own has a `symbol`. Its library must exist when the table is read and is loaded when the table is
installed, not before. Each attribute's text begins with its type, `i64`, `f32`, `string`, `bool` or `array<i64>`, and
a colon. The handler gets the operands in the order written here and gives one result (and scratch memory
as a second one, where a pattern's call asks for it).
"""


def reference() -> str:
    """The complete reference, from its heading to the end of the file."""
    parts = [
        _HEADING,
        "### A table\n",
        _keys(schema.TableFile),
        "### `activations: {name: ...}`\n",
        _keys(schema.ActivationEntry),
        "A parameter:\n",
        _keys(schema.ParameterEntry),
        "A post-op:\n",
        _keys(schema.Eltwise),
        _table(("algorithm", "computes"), ((f"`{name}`", f"`{formula}`") for name, formula in ELTWISE.items())),
        "### `binaries: {name: ...}`\n",
        _keys(schema.BinaryEntry),
        "Its post-op:\n",
        _keys(schema.BinaryAlgorithm),
        "`reversed`:\n",
        _keys(schema.ReversedEntry),
        _opcodes(),
        "### `anchors: {name: ...}`\n",
        _keys(schema.AnchorEntry),
        "Op kinds (the key `reading`), of which an instruction has one at most:\n",
        _table(("opcode", "op kind", "instructions", "kernels"), _op_kind_rows()),
        f"`numerics`, for each of the dtypes ({', '.join(ANCHOR_DTYPES)}):\n",
        _keys(schema.NumericsEntry),
        "### `epilogues: {name: ...}`, and what an anchor says of its own\n",
        _keys(schema.Epilogues),
        "### `kernels: {name: ...}`\n",
        _keys(schema.KernelEntry),
        "A kind of `score_steps`:\n",
        _keys(schema.ScoreStepEntry),
        _OWN_KERNELS,
        "### `patterns: {name: ...}`\n",
        _keys(schema.PatternEntry),
        "`kernel`:\n",
        _keys(schema.CallEntry),
        "Constraints, in `where:` under a value's name or as a keyword of the operation that yields it:\n",
        _table(("constraint", "the value", "… is written as"), _constraints()),
        "Attributes are literals or facts of a value, `dims(x)`, `size(x, -1)`, `value(beta)`:\n",
        _table(("fact", "type", ""), ((f"`{name}`", fact.type, fact.sentence) for name, fact in FACTS.items())),
        "Operations, besides the activations of all tables:\n",
        f"`{' '.join(sorted(OPERATIONS))}`\n",
        "### `routines: {name: ...}`\n",
        _keys(schema.RoutineEntry),
        "### `attentions: {name: ...}`\n",
        _keys(schema.AttentionEntry),
        "### `recurrents: {name: ...}`\n",
        _keys(schema.RecurrentEntry),
        "### `group_norms: {name: ...}`\n",
        _keys(schema.GroupNormEntry),
        "### `elementwise: {name: ...}`\n",
        _keys(schema.ElementwiseEntry),
    ]
    return "\n".join(parts)


def _keys(model: type[BaseModel]) -> str:
    """The keys of one mapping, required ones in bold."""
    rows = (
        (f"**{name}**" if field.is_required() else name, field.description or "")
        for name, field in model.model_fields.items()
    )
    return _table(("key", ""), rows)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heads).rstrip() + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _opcodes() -> str:
    kinds = ", ".join(f"`{kind}`" for kind in ("scalar", "per-channel", "per-row", "full"))
    meanings = {formula: algorithm for algorithm, formula in BINARY.items()}
    pairs = ", ".join(f"{opcode} `{meanings[formula]}`" for opcode, formula in OPCODES.items())
    text = f"Broadcasts: {kinds}. Opcodes and their algorithms: {pairs}; one binary per opcode."
    return textwrap.fill(text, 116, break_on_hyphens=False) + "\n"


def _op_kind_rows() -> Iterable[tuple[str, ...]]:
    for op_kind in OP_KINDS.values():
        kernels = ", ".join(f"`{kernel}`" for kernel in op_kind.kernels)
        yield f"`{op_kind.opcode}`", f"`{op_kind.name}`", op_kind.sentence, kernels


def _constraints() -> Iterable[tuple[str, str, str]]:
    for name, constraint in CONSTRAINTS.items():
        of = f" (of {', '.join(f'`{word}`' for word in constraint.operations)})" if constraint.operations else ""
        yield f"`{name}`", constraint.sentence.replace("{}", "…") + of, constraint.takes
