"""Attribute fuzzer: random mutations of a valid call, of its attributes and buffers."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from wire_calls import Array, Attributes, WireCall, strides, tagged, valid_calls

NUMBERS = [
    *range(-1, 10), 15, 16, 17, 31, 32, 64, 65, 100, 2**15, 2**16, 2**24, 2**24 + 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1,
    2**32, 2**32 + 1, 2**33, 2**40, 2**47, 2**61, 2**62, 2**63 - 1, -2, -(2**31), -(2**32), -(2**62), -(2**63),
]  # fmt: skip
# Of 1e38 a few terms of a sum would overflow in f32 and not in the reference.
FLOATS = [0.0, -0.0, 0.5, -1.0, 1e30, float("inf"), float("-inf"), float("nan")]
TEXTS = [
    "", "f32", "f64", "bf16", "f16", "c64", "c128", "s8", "plain", "any", "best", "packed", "max", "average", "relu",
    "tanh", "clip", "scale", "select", "causal", "window", "softcap", "pred",
    "add", "mul", "div", "eltwise", "binary", "sum", "x" * 500, "\u00e9",
]  # fmt: skip
TYPES = ["f32", "f64", "bf16", "c64", "s32", "s64", "s8", "u8", "pred"]
UNASKED = (
    "weights_reversed", "symmetrised", "weights_format", "packed_bytes", "packed_layout", "target", "bias_type",
    "src_offset", "src_elements", "weights_offset", "weights_elements", "dst_offset", "dst_elements", "diff_dst_offset",
    "post_op_0", "post_op_2", "post_op_31", "post_op_32", "query_offset", "query_elements", "score_0",
    "score_1", "extra",
)  # fmt: skip

Draw = random.Random
Change = Callable[[Draw, WireCall], str]


def changed_call(rng: Draw) -> WireCall:
    """A valid call with one to four changes; it says which."""
    call = copy.deepcopy(rng.choice(valid_calls()))
    changes = [rng.choice(CHANGES) for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4]))]
    changes.sort(key=_LAST.__contains__)  # those that others would stumble over
    call.says = "; ".join(filter(None, (change(rng, call) for change in changes)))
    return call


def changed_calls() -> st.SearchStrategy[WireCall]:
    """Such calls, chosen by Hypothesis."""
    return st.randoms(use_true_random=False).map(changed_call)


def _number(rng: Draw, near: int) -> int:
    chosen = rng.choice([near - 1, near + 1, near * 2, near // 2, *rng.sample(NUMBERS, 4)])
    return _fitting([chosen])[0]


def _fitting(numbers: Sequence[int]) -> list[int]:
    return [max(-(2**63), min(2**63 - 1, number)) for number in numbers]


def _places(attributes: Attributes, kind: str) -> list[list[Any]]:
    """Every attribute of the type, those of post-ops too."""
    found = []
    for entry in attributes.values():
        if entry[0] == "dictionary":
            found += _places(entry[1], kind)
        elif entry[0] == kind:
            found.append(entry)
    return found


def _one_number(rng: Draw, call: WireCall) -> str:
    entry = rng.choice(_places(call.attributes, "i64") or [["i64", 0]])
    entry[1] = _number(rng, entry[1])
    return f"an integer is {entry[1]}"


def _one_of_a_list(rng: Draw, call: WireCall) -> str:
    entry = rng.choice([entry for entry in _places(call.attributes, "i64s") if entry[1]] or [["i64s", [0]]])
    place = rng.randrange(len(entry[1]))
    entry[1][place] = _number(rng, entry[1][place])
    return f"a list is {entry[1]}"


def _length_of_a_list(rng: Draw, call: WireCall) -> str:
    entry = rng.choice(_places(call.attributes, "i64s") or [["i64s", [0]]])
    entry[1] = rng.choice([[], entry[1][:-1], [*entry[1], 1], [1, *entry[1]], entry[1] * 3, [2] * 13, [1] * 5000])
    return f"a list has {len(entry[1])} entries"


def _huge_sizes(rng: Draw, call: WireCall) -> str:
    """Sizes and strides of one array whose products overflow, to nothing or to what they were."""
    attributes = _describing(rng, call.attributes)
    if not attributes:
        return ""
    role = _role(rng, attributes)
    dims = [rng.choice([2**16, 2**31, 2**32, 2**33, 2**62, 2**63 - 1, 1, 3]) for _ in attributes[f"{role}_dims"][1]]
    attributes[f"{role}_dims"][1] = dims
    if rng.random() < 0.5:
        attributes[f"{role}_strides"][1] = _fitting(strides(dims))
    return f"{role} is {dims}"


def _describing(rng: Draw, attributes: Attributes) -> Attributes:
    """The attributes that describe arrays: the call's own, or those of one of its members; none where none do."""
    if any(name.endswith("_strides") for name in attributes):
        return attributes
    members = [value for name, (_, value) in attributes.items() if name.startswith("member_")]
    return rng.choice(members) if members else {}


def _role(rng: Draw, attributes: Attributes) -> str:
    return rng.choice([n.removesuffix("_strides") for n in attributes if n.endswith("_strides")])


def _other_order(rng: Draw, call: WireCall) -> str:
    """Dense again, in another order: as right as before, if the kernel takes it."""
    attributes = _describing(rng, call.attributes)
    if not attributes:
        return ""
    role = _role(rng, attributes)
    dims = attributes[f"{role}_dims"][1]
    order = rng.sample(range(len(dims)), len(dims))
    steps, step = [0] * len(dims), 1
    for axis in reversed(order):
        steps[axis], step = step, step * dims[axis]
    attributes[f"{role}_strides"][1] = _fitting(steps)
    return f"{role} lies in the order {order}"


def _other_sizes(rng: Draw, call: WireCall) -> str:
    """One size of everything that has it, sizes and buffers alike: often a whole call again."""
    sizes = sorted({size for array in call.operands for size in array.dims})
    if not sizes:
        return ""
    old = rng.choice(sizes)
    new = rng.choice([0, 1, 2, 3, 5, 8, 17, old + 1, max(old - 1, 0)])
    for array in (*call.operands, *call.results):
        if array.type != "u8":
            array.dims[:] = [new if size == old else size for size in array.dims]
    _resized(call.attributes, old, new)
    return f"{old} is {new} everywhere"


def _huge_size(rng: Draw, call: WireCall) -> str:
    """One size of everything that has it, in the attributes alone: a call that fits together, planned for no buffer."""
    described = [entry[1] for name, entry in call.attributes.items() if name.endswith("dims")]
    old = rng.choice(sorted({size for dims in described for size in dims}) or [1])
    new = rng.choice([10**4 + 1, 2**16, 2**20, 2**24, 2**30, 2**31 - 1, 2**31, 2**40])
    _resized(call.attributes, old, new)
    return f"{old} is {new} in the attributes"


def _resized(attributes: Attributes, old: int, new: int) -> None:
    for name, (kind, value) in list(attributes.items()):
        if kind == "dictionary":
            _resized(value, old, new)
        elif name.endswith("dims"):
            value[:] = [new if size == old else size for size in value]
            steps = attributes.get(name.removesuffix("dims") + "strides")
            if steps is not None:
                steps[1] = _fitting(strides(value, by_column=len(value) > 1 and steps[1][-1:] != [1]))


def _missing(rng: Draw, call: WireCall) -> str:
    name = rng.choice(sorted(call.attributes))
    del call.attributes[name]
    return f"{name} is missing"


def _wrong_type(rng: Draw, call: WireCall) -> str:
    name = rng.choice(sorted(call.attributes))
    call.attributes[name] = rng.choice([
        ["i64", 1], ["i32", 1], ["f32", 1.0], ["f64", 1.0], ["flag", True], ["text", "1"], ["i64s", [1]], ["i32s", [1]],
        ["f32s", [1.0]], ["dictionary", {}], ["dictionary", {"kind": ["i64", 1]}],
    ])  # fmt: skip
    return f"{name} is {call.attributes[name]}"


def _unasked(rng: Draw, call: WireCall) -> str:
    name = rng.choice(UNASKED)
    relu = {"kind": "eltwise", "algorithm": "relu", "alpha": rng.choice(FLOATS), "beta": 0.0}
    other = call.attributes.get("post_op_1", tagged(relu))
    call.attributes[name] = rng.choice([tagged(_number(rng, 1)), tagged(rng.choice(TEXTS)), tagged(relu), other])
    return f"{name} is {call.attributes[name]}"


def _many_post_ops(rng: Draw, call: WireCall) -> str:
    count = rng.choice([2, 31, 32, 33, 40])
    relu = {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    for number in range(count):
        call.attributes[f"post_op_{number}"] = tagged(relu)
    return f"{count} post-ops"


def _float(rng: Draw, call: WireCall) -> str:
    places = _places(call.attributes, "f32")
    if not places:
        return ""
    entry = rng.choice(places)
    entry[1] = rng.choice(FLOATS)
    return f"a float is {entry[1]}"


def _text(rng: Draw, call: WireCall) -> str:
    entry = rng.choice(_places(call.attributes, "text") or [["text", ""]])
    entry[1] = rng.choice(TEXTS)
    return f"a text is {entry[1]!r}"


def _buffers(rng: Draw, call: WireCall) -> list[Array]:
    return rng.choice([side for side in (call.operands, call.results) if side] or [[Array("f32", [1])]])


def _other_buffer(rng: Draw, call: WireCall) -> str:
    array = rng.choice(_buffers(rng, call))
    if array.dims and rng.random() < 0.7:
        place = rng.randrange(len(array.dims))
        array.dims[place] = rng.choice(
            [0, 1, array.dims[place] + 1, max(0, array.dims[place] - 1), 2 * array.dims[place]]
        )
    else:
        array.type = rng.choice(TYPES)
    return f"a buffer is {array.type}{array.dims}"


def _count_of_buffers(rng: Draw, call: WireCall) -> str:
    side = _buffers(rng, call)
    if rng.random() < 0.5:
        del side[rng.randrange(len(side))]
        return "a buffer is missing"
    side.append(copy.deepcopy(rng.choice(side)))
    return "there is one more buffer"


def _exchanged(rng: Draw, call: WireCall) -> str:
    side = _buffers(rng, call)
    rng.shuffle(side)
    return "buffers are exchanged"


CHANGES: Sequence[Change] = (
    _one_number, _one_of_a_list, _one_of_a_list, _length_of_a_list, _huge_sizes, _other_order, _other_order,
    _other_sizes, _other_sizes, _huge_size, _missing, _wrong_type, _unasked, _many_post_ops, _float, _text,
    _other_buffer, _count_of_buffers, _exchanged,
)  # fmt: skip
_LAST = {_missing, _wrong_type, _unasked}
