"""Prospect of automatic freezing: which arguments of a call that was not made can be frozen, for `explain`."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo_dispatch.automatic_freezing.eligibility import is_freezable, refusal_of_jaxpr, refusal_of_leaves
from hlo_dispatch.automatic_freezing.plain_program import forwarded_leaves
from hlo_dispatch.automatic_freezing.traced_call import donated_flags
from hlo_dispatch.report.wording import plural

_SHOWN = 3


def sentence(name: str, traced: Any, leaves: Sequence[Any], names: Sequence[str], smallest: int) -> str:
    """`predict: 12 arguments can be frozen (w, b, …), 1,024 bytes, where calls pass the same objects again`.

    Args:
        traced: the call as JAX has traced it.
        names: the path of each leaf.
        smallest: bytes of frozen leaves together that are worth it.
    """
    refusal = refusal_of_jaxpr(traced.jaxpr) or refusal_of_leaves(leaves)
    if refusal:
        return f"{name}: never frozen: {refusal}"
    forwarded, flags = forwarded_leaves(traced, leaves), donated_flags(traced)
    numbers = [n for n, leaf in enumerate(leaves) if is_freezable(leaf) and (n in forwarded or not flags[n])]
    size = sum(leaves[number].nbytes for number in numbers)
    if size < smallest:
        return (
            f"{name}: not frozen: the arguments that could be have {size:,} bytes of the {smallest:,} that are worth it"
        )
    shown = ", ".join(names[number] for number in numbers[:_SHOWN]) + (", …" if len(numbers) > _SHOWN else "")
    what = f"{plural(len(numbers), 'argument')} can be frozen ({shown}), {size:,} bytes"
    return f"{name}: {what}, where calls pass the same objects again"
