"""Attribute fuzzer, call groups: valid calls, and the reference of their members in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import LOADED, Array, WireCall, onednn, tagged, tensors

from hlo_dispatch.vendor import libraries, registry


def _product(m: int, k: int, n: int, *, residual: bool = False, accumulated: int | None = None) -> WireCall:
    """With a residual that it reads, or one whose place its result takes."""
    dims = {"src": [m, k], "weights": [k, n], "dst": [m, n]}
    attributes = tensors(**{role: ("f32", sizes) for role, sizes in dims.items()})
    operands = [Array("f32", dims["src"]), Array("f32", dims["weights"])]
    if residual:
        described = tensors(x=("f32", dims["dst"]))
        binary = {name.removeprefix("x_"): value for name, value in described.items()}
        attributes["post_op_0"] = {"kind": "binary", "algorithm": "add"} | binary
        operands.append(Array("f32", dims["dst"]))
    if accumulated is not None:
        attributes |= {"post_op_0": {"kind": "sum"}, "accumulated": accumulated}
    return onednn("matmul", attributes, operands, Array("f32", dims["dst"]))


def _gate(m: int, n: int) -> WireCall:
    """m x n times m x 1."""
    attributes = tensors(src=("f32", [m, n]), dst=("f32", [m, n]))
    described = tensors(x=("f32", [m, 1]))
    binary = {name.removeprefix("x_"): value for name, value in described.items()}
    attributes["post_op_0"] = {"kind": "binary", "algorithm": "mul"} | binary
    return onednn("binary", attributes, [Array("f32", [m, n]), Array("f32", [m, 1])], Array("f32", [m, n]))


def call_group(
    members: list[tuple[WireCall, list[int], int]], operands: list[Array], results: list[Array], offsets: list[int]
) -> WireCall:
    """A call group of members: each with the values that it reads and the one that it writes."""
    intermediates = _intermediates(members, offsets, len(operands) + len(results))
    ends = [offset + 4 * int(np.prod(call.results[0].dims)) for offset, (call, _, _) in intermediates]
    intermediates_bytes = -(-max(ends, default=0) // 64) * 64
    scratch = intermediates_bytes + max(call.attributes["scratch"][1] for call, _, _ in members)
    attributes: dict[str, Any] = {
        "abi": 1, "library": LOADED, "scratch": scratch, "operands": len(operands), "results": len(results),
        "members": len(members), "offsets": offsets,
    }  # fmt: skip
    tags = {name: tagged(value) for name, value in attributes.items()}
    for number, (call, inputs, output) in enumerate(members):
        about = {"target": f"hlo_dispatch.{call.name}", "inputs": inputs, "output": output}
        tags[f"member_{number}"] = ["dictionary", {n: tagged(v) for n, v in about.items()} | call.attributes]
    return WireCall("onednn.sequence", tags, operands, [*results, Array("u8", [scratch])])


def _split_buffer(said: dict[str, Any], given: list[np.ndarray]) -> list[np.ndarray]:
    """The operands; coalesced ones each from their offset to the buffer's end."""
    if "held" not in said:
        return given
    coalesced_buffer = given[0].reshape(-1).view(np.float32)
    return [*(coalesced_buffer[place // 4 :] for place in said["held"]), *given[1:]]


def _intermediates(members: list[Any], offsets: list[int], first: int) -> list[tuple[int, Any]]:
    return [(offsets[member[2] - first], member) for member in members if member[2] >= first]


def valid_calls() -> list[WireCall]:
    """Two in a row; a branch whose sides meet again, one of them a result, too; one call alone; a gate in place."""
    libraries.onednn()
    array = lambda *dims: Array("f32", list(dims))  # noqa: E731
    chain = call_group(
        [(_product(5, 7, 16), [0, 1], 4), (_product(5, 16, 3), [4, 2], 3)],
        [array(5, 7), array(7, 16), array(16, 3)], [array(5, 3)], [0],
    )  # fmt: skip
    # Values: x, v, w, residual's sum, the branch, two inner ones.
    branch = call_group(
        [
            (_product(4, 8, 8), [0, 1], 5),
            (_product(4, 8, 8), [5, 2], 4),
            (_product(4, 8, 8, residual=True), [5, 1, 4], 6),
            (_product(4, 8, 8), [6, 2], 3),
        ],
        [array(4, 8), array(8, 8), array(8, 8)], [array(4, 8), array(4, 8)], [0, 128],
    )  # fmt: skip
    single = call_group([(_product(3, 5, 2), [0, 1], 2)], [array(3, 5), array(5, 2)], [array(3, 2)], [])
    return [chain, branch, single, gated([0, 128, 0]), coalesced([0, 448], 640), attended([0, 128]), added([0, 128, 0])]


def coalesced(places: list[int], size: int) -> WireCall:
    """Two products in a row, with weights coalesced into one buffer of so many bytes."""
    array = lambda *dims: Array("f32", list(dims))  # noqa: E731
    call = call_group(
        [(_product(5, 7, 16), [2, 0], 4), (_product(5, 16, 3), [4, 1], 3)],
        [array(7, 16), array(16, 3), array(5, 7)], [array(5, 3)], [0],
    )  # fmt: skip
    attributes = call.attributes | {"held": tagged(places), "held_bytes": tagged(size)}
    return WireCall(call.name, attributes, [Array("u8", [size]), array(5, 7)], call.results)


def gated(offsets: list[int]) -> WireCall:
    """Two products, one the other's gate, and a third of their result, at the last offset."""
    array = lambda *dims: Array("f32", list(dims))  # noqa: E731
    return call_group(
        [
            (_product(4, 8, 8), [0, 1], 4),
            (_product(4, 8, 1), [0, 2], 5),
            (_gate(4, 8), [4, 5], 6),
            (_product(4, 8, 8), [6, 1], 3),
        ],
        [array(4, 8), array(8, 8), array(8, 1)], [array(4, 8)], offsets,
    )  # fmt: skip


def added(offsets: list[int], accumulated: int = 4) -> WireCall:
    """Two products in a row, the second one's result added to the first one's, and a third of the sum."""
    array = lambda *dims: Array("f32", list(dims))  # noqa: E731
    return call_group(
        [
            (_product(4, 8, 8), [0, 1], 4),
            (_product(4, 8, 8), [4, 2], 5),
            (_product(4, 8, 8, accumulated=accumulated), [5, 1], 6),
            (_product(4, 8, 8), [6, 2], 3),
        ],
        [array(4, 8), array(8, 8), array(8, 8)], [array(4, 8)], offsets,
    )  # fmt: skip


def attended(offsets: list[int]) -> WireCall:
    """A product, attention of what it makes to itself and to an operand, with a mask, and another product."""
    array = lambda *dims: Array("f32", list(dims))  # noqa: E731
    roles = {"query": [4, 8], "key": [4, 8], "value": [4, 8], "dst": [4, 8]}
    said: dict[str, Any] = {"abi": 1, "library": registry.own_version(), "scratch": 0}
    said["score_0"] = {"kind": "select", "type": "pred", "dims": [4, 4], "strides": [0, 1], "value": -1e9}
    attributes = {name: tagged(value) for name, value in said.items()}
    attributes |= {n: tagged(v) for n, v in tensors(**{role: ("f32", dims) for role, dims in roles.items()}).items()}
    attention = WireCall(
        "own.attention", attributes, [*[array(4, 8)] * 3, Array("pred", [4])], [array(4, 8), Array("u8", [0])]
    )
    return call_group(
        [(_product(4, 8, 8), [0, 1], 5), (attention, [5, 0, 5, 3], 6), (_product(4, 8, 8), [6, 2], 4)],
        [array(4, 8), array(8, 8), array(8, 8), Array("pred", [4])], [array(4, 8)], offsets,
    )  # fmt: skip


def _with_residual(
    member: dict[str, Any], read: list[np.ndarray], values: dict[int, np.ndarray]
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The member and its operands as if it read what it adds to."""
    if "accumulated" not in member:
        return member, read
    assert [name for name in member if name.startswith("post_op_")] == ["post_op_0"]
    described = {what: member[f"dst_{what}"] for what in ("type", "dims", "strides")}
    residual = {"kind": "binary", "algorithm": "add"} | described
    return member | {"post_op_0": residual}, [*read, values[member["accumulated"]]]


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], of_member: Any) -> list[Any]:
    """Every result, and what the members make of the operands; nothing where a member's meaning is not known."""
    values: dict[int, np.ndarray] = dict(enumerate(_split_buffer(said, given)))
    expected: list[Any] = []
    first, last = said["operands"], said["operands"] + said["results"]
    for number in range(said["members"]):
        member = said[f"member_{number}"]
        size = 1 + sum((d - 1) * s for d, s in zip(member["dst_dims"], member["dst_strides"], strict=True))
        blank = np.zeros(size, np.float32)
        name = member["target"].removeprefix("hlo_dispatch.")
        read = [values[value] for value in member["inputs"]]
        found = of_member(name, *_with_residual(member, read, values), [blank])
        if not found:
            return []
        ((_, _, meant),) = found
        steps = [4 * stride for stride in member["dst_strides"]]
        np.lib.stride_tricks.as_strided(blank, member["dst_dims"], steps)[...] = meant
        values[member["output"]] = blank
        if first <= member["output"] < last:
            expected.append(
                (f"result {member['output'] - first}", results[member["output"] - first].reshape(-1), blank)
            )
    return expected
