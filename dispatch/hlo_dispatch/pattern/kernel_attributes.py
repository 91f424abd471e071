"""Kernel attributes that follow from what a kernel reads and gives, so that no table writes them out.

A kernel of the package describes its operands and results in attributes of their names (`src_dims`); one that a routine
names has those of the routine's operands and results. None of it needs the native library: a test compares the names,
targets and libraries here with what the C++ registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_dispatch.pattern.facts import I64, I64S, STRING, FactQuery

if TYPE_CHECKING:
    from hlo_dispatch.pattern.schema import KernelEntry

DESCRIPTIONS: Mapping[str, tuple[str, str, str]] = {
    "type": (STRING, "the element type of {}", "dtype"),
    "dims": (I64S, "the dimensions of {}", "dims"),
    "strides": (I64S, "the strides of {}, in elements", "strides"),
    "offset": (I64, "elements in front of {}, where it is a part of its buffer", ""),
    "elements": (I64, "elements of the whole buffer that {} is a part of", ""),
}
"""What a kernel may be told of a value: its attribute's type and meaning, and the fact that a pattern binds it to."""

_OF_EVERY_CALL = {
    "abi": "i64: version of this contract",
    "library": "string: the library's version that the call was planned for",
}
_SCRATCH = {"scratch": "i64: bytes of scratch memory, the last result; 0: it needs none"}
POST_OPS = "post_op_0"
"""The attribute of a kernel that computes an epilogue."""


def declared_attributes(entry: KernelEntry, *, is_shipped: bool) -> dict[str, str]:
    """Every attribute of a kernel with its type and meaning."""
    declared = _OF_EVERY_CALL | _SCRATCH if is_shipped else {}
    declared |= entry.attributes
    for value, words in entry.describes.items():
        declared |= _described(value, words)
    if entry.post_ops is not None:
        declared[POST_OPS] = f"{{kind, algorithm, ...}}: {entry.post_ops}; the chain is post_op_0, post_op_1, ..."
    if entry.score_steps:
        declared["score_0"] = f"{{kind, ...}}: {', '.join(entry.score_steps)}; the steps are score_0, score_1, ..."
    return declared


def declared_operands(post_ops: str | None, operands: Mapping[str, str]) -> dict[str, str]:
    """Every operand of a kernel with its shape."""
    of_chain = {"post_op": "one per binary post-op, in the order of the chain; 1 where broadcast"}
    return dict(operands) | (of_chain if post_ops is not None and "post_op" not in operands else {})


def routine_attributes(
    values: Iterable[str], dtypes: Iterable[str], options: Iterable[str], symmetrised: str | None
) -> dict[str, str]:
    """The attributes of a kernel that computes a routine with these operands and results."""
    declared = _OF_EVERY_CALL | {"type": f"string: {', '.join(dtypes)} (not every kernel takes each)"}
    for value in values:
        declared |= _described(value, ("dims", "strides"))
    declared |= {option: "i64: the instruction's own attribute" for option in options}
    if symmetrised is not None:
        declared["symmetrised"] = f"i64: 1 if {symmetrised} is to be read as (a + transpose(a)) / 2"
    return declared


def bound_descriptions(
    describes: Mapping[str, Sequence[str]], operands: Mapping[str, str], result: str
) -> dict[str, FactQuery]:
    """The attributes that describe a pattern's call: facts of the values that are its operands, and of its result.

    Args:
        operands: the kernel's operand → the value that the pattern captures.
    """
    found: dict[str, FactQuery] = {}
    for value, words in describes.items():
        of = operands.get(value) or (result if value == "dst" else None)
        if of is not None:
            facts = ((word, DESCRIPTIONS[word][2]) for word in words)
            found |= {f"{value}_{word}": FactQuery(fact, of) for word, fact in facts if fact}
    return found


def _described(value: str, words: Iterable[str]) -> dict[str, str]:
    described: dict[str, str] = {}
    for word in words:
        kind, meaning, _ = DESCRIPTIONS[word]
        described[f"{value}_{word}"] = f"{kind}: {meaning.format(value)}"
    return described
