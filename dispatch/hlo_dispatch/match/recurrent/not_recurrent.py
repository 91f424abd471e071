"""The outcome of a match attempt that finds no recurrent layer."""

from __future__ import annotations

from typing import NoReturn

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.errors import Refusal


class NotRecurrent(Exception):
    """The loop is no recurrent layer that a kernel computes."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


def refuse(sentence: str, node: Node, code: str = "recurrent-cell") -> NoReturn:
    """Raises NotRecurrent."""
    raise NotRecurrent(Refusal(code, sentence, node.name))
