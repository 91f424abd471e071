"""Helpers to parse, flatten and match modules that a test writes as text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings
from hlo_dispatch.match.anchors.normalizers import by_op_kind, normalize_anchor, op_kind_of
from hlo_dispatch.match.epilogue.finder import EpilogueFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.passes.mask_redirection import redirect_masks
from hlo_dispatch.pattern import Recogniser, Table, load_tables
from hlo_dispatch.pattern.table import AnchorKind
from hlo_dispatch.process.machine import Machine, this_machine

_F = "f32[4]{0}"
EDITED = f"""
fused {{ p = {_F} parameter(0)
  ROOT n = {_F} negate(p) }}
ENTRY main {{ x = {_F} parameter(0)
  unread = {_F} parameter(1)
  read = {_F} fusion(x), kind=kLoop, calls=fused
  dropped = {_F} copy(x)
  effect = {_F} custom-call(x), custom_call_target="print"
  late = {_F} copy(x), control-predecessors={{dropped}}
  renamed = f32[2,2]{{1,0}} bitcast(dropped)
  ROOT t = ({_F}, {_F}) tuple(read, late) }}
"""
"""A module to edit: a fusion, what nothing reads, an effect, a control dependency."""


def doubling_fusions(depth: int) -> str:
    """Fusions that each call the next one twice, on different operands."""
    levels = "".join(
        f"""level.{n} {{ p.{n} = f32[4]{{0}} parameter(0)
  q.{n} = f32[4]{{0}} negate(p.{n})
  a.{n} = f32[4]{{0}} fusion(p.{n}), kind=kLoop, calls=level.{n - 1}
  b.{n} = f32[4]{{0}} fusion(q.{n}), kind=kLoop, calls=level.{n - 1}
  ROOT sum.{n} = f32[4]{{0}} add(a.{n}, b.{n}) }}
"""
        for n in range(1, depth + 1)
    )
    return f"""
level.0 {{ p = f32[4]{{0}} parameter(0)
  ROOT r = f32[4]{{0}} tanh(p) }}
{levels}ENTRY main {{ x = f32[4]{{0}} parameter(0)
  ROOT all = f32[4]{{0}} fusion(x), kind=kLoop, calls=level.{depth} }}
"""


@lru_cache(maxsize=64)
def serialized(text: str) -> bytes:
    """The module of HLO text without its first line; the same bytes every time, where XLA would number it anew."""
    return hlo_text.from_text("HloModule written\n" + text)


def parsed(text: str) -> Module:
    """The same as our Module."""
    return Module.from_bytes(serialized(text))


def flattened(text: str, computation: str = "") -> FlatGraph:
    """The flat view of the entry, or of the computation of that name."""
    module = parsed(text)
    named = {proto.name: proto for proto in module.proto.computations}
    return FlatGraph(module, named[computation] if computation else module.entry)


def node(graph: FlatGraph, name: str) -> Node:
    """The one value that the instruction of this name computes."""
    (found,) = [value for value in graph.nodes if value.name == name]
    return found


def instruction(module: Module, name: str):
    """The proto of this name, anywhere in the module."""
    (found,) = [proto for proto in module.instructions if proto.name == name]
    return found


def last_dumped(folder: Path, name: str) -> Module:
    """The last module of this name that HLO_DISPATCH_DUMP_PASSES wrote into a folder."""
    written = max(folder.glob(f"{name}*"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    return hlo_text.parsed(written.read_text())


@lru_cache(maxsize=1)
def table() -> Table:
    """The shipped table."""
    return load_tables()


def normalized(module: Module, entries: Iterable[AnchorKind] | None = None) -> tuple[str, Anchor | Refusal]:
    """The op kind of the entry's `op`, and its anchor or the refusal.

    Args:
        entries: of the table; by default those of the shipped one.
    """
    graph = FlatGraph(module, module.entry)
    around, op = Surroundings(graph, this_machine()), node(graph, "op")
    kinds = by_op_kind(table().anchors.values() if entries is None else entries)
    return op_kind_of(op, around), normalize_anchor(op, kinds, around)


@lru_cache(maxsize=1)
def finder() -> EpilogueFinder:
    return EpilogueFinder(Recogniser(table().activations), table().binaries)


def matches(
    graph: FlatGraph, taken: set[Node] = frozenset(), needed: set[Node] = frozenset(), machine: Machine | None = None
) -> dict:
    """Anchor's name → its match or refusal, each match taking what it covers, as the plan has it."""
    redirect_masks(graph)
    matcher = Matcher(graph, table(), finder(), machine or this_machine())
    owned, in_memory = set(taken), {graph.root, *needed}
    found: dict[str, Match | Refusal] = {}
    for anchor in matcher.anchors():
        if anchor in owned:
            continue
        match = found[anchor.name] = matcher.match(anchor, owned.__contains__, in_memory.__contains__)
        if isinstance(match, Match):
            owned.update(match.covered)
            in_memory.update(view.node for view in match.operands.values())
    return found


def only_match(text: str) -> Match:
    """The match of a module's one anchor."""
    (match,) = matches(flattened(text)).values()
    assert isinstance(match, Match), str(match)
    return match
