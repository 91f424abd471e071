"""Each op kind against each code with which its normalizer can refuse: those that any instruction can be refused with
are generated, the others are cases of `refusal_sentences`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType

import pytest

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, InstructionProto
from hlo_dispatch.match.anchors.anchor import Anchor, converted_sums
from hlo_dispatch.match.anchors.convolution_forms import FORMS
from hlo_dispatch.match.anchors.normalizers import NORMALIZERS
from matching import instruction, normalized, parsed
from refusal_cases import order
from refusal_modules import convolution, dot, entry, gradient, integer_convolution, pooling, reduction
from refusal_sentences import ANCHORS

_MATRICES = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
ACCEPTED = {
    "forward": convolution("f32[1,8,8,4]", "f32[3,3,4,8]", "f32[1,6,6,8]", "size=3x3"),
    "transposed": convolution("f32[1,8,8,4]", "f32[3,3,4,8]", "f32[1,22,22,8]", "size=3x3 pad=1_1x1_1 lhs_dilate=3x3"),
    "weights_gradient": gradient(),
    "product": dot("f32[4,8]", "f32[8,5]", "f32[4,5]", _MATRICES),
    "wrapping_product": dot("s16[4,8]", "s16[8,5]", "s16[4,5]", _MATRICES),
    "narrow_product": dot("f32[4,64]", "s8[64,32]", "f32[4,32]", _MATRICES, "c = f32[64,32] convert(w)", "x, c"),
    "pooling": pooling("f32[1,8,8,4]", "f32[1,7,7,4]", "size=1x2x2x1"),
    "whole_window": reduction("f32[2,3,4,8]", "f32[2,8]", "1,2"),
    "scaling": entry("""x = f32[4,8] parameter(0)
        y = f32[4,8] parameter(1)
        op = f32[4,8] multiply(x, y)
        ROOT r = f32[4,8] negate(op)"""),
    "rectifying": entry("""x = f32[4,8] parameter(0)
        zero = f32[] constant(0)
        zeros = f32[4,8] broadcast(zero), dimensions={}
        op = f32[4,8] maximum(x, zeros)
        ROOT r = f32[4,8] negate(op)"""),
    "concatenation": entry("""x = f32[4,8] parameter(0)
        y = f32[4,8] parameter(1)
        op = f32[4,16] concatenate(x, y), dimensions={1}
        ROOT r = f32[4,16] negate(op)"""),
}
"""Op kind → a module whose `op` is taken."""
OF_INTEGERS = {
    "forward": integer_convolution("s8[1,8,8,4]", "s8[3,3,4,8]", "[1,6,6,8]", "size=3x3"),
    "product": dot("s8[4,8]", "s8[8,5]", "s32[4,5]", _MATRICES, behind="ROOT c = f32[4,5] convert(op)"),
}
"""Likewise, of integers."""
CASES = [*ACCEPTED.items(), *OF_INTEGERS.items()]


def _other_type(_: Module, op: InstructionProto) -> None:
    op.shape.element_type = ELEMENT_TYPE_NUMBERS["c64"]


def _dynamic(_: Module, op: InstructionProto) -> None:
    op.shape.is_dynamic_dimension[:] = [True] + [False] * (len(op.shape.dimensions) - 1)


def _empty(_: Module, op: InstructionProto) -> None:
    op.shape.dimensions[0] = 0


def _ordered(module: Module, op: InstructionProto) -> None:
    order(module, op)


def _algorithm(_: Module, op: InstructionProto) -> None:
    op.precision_config.algorithm = 6  # dot_bf16_bf16_f32


MUTATIONS: dict[str, Callable[[Module, InstructionProto], None]] = {
    "dtype-unsupported": _other_type,
    "dynamic-shape": _dynamic,
    "zero-size": _empty,
    "control-dependency": _ordered,
    "precision-unsupported": _algorithm,
}
"""Code → what is changed in an instruction that is refused with it then, whatever it computes."""


@pytest.mark.parametrize(("op_kind", "text"), CASES)
def test_it_is_taken(op_kind: str, text: str) -> None:
    kind, found = normalized(parsed(text))
    assert kind == op_kind
    assert isinstance(found, Anchor), str(found)


def test_each_op_kind_has_a_module() -> None:
    assert ACCEPTED.keys() == NORMALIZERS.keys()


@pytest.mark.parametrize(("op_kind", "text"), CASES)
@pytest.mark.parametrize("code", MUTATIONS)
def test_it_is_refused(op_kind: str, text: str, code: str) -> None:
    module = parsed(text)
    MUTATIONS[code](module, instruction(module, "op"))
    _, found = normalized(module)
    assert isinstance(found, Refusal)
    assert (found.code, found.instruction) == (code, "op")


UNREACHED = {"rectifying": {"not-in-memory"}}
"""Op kind → codes of a function that it shares with another one: here the second operand is a number."""


@pytest.mark.parametrize("op_kind", NORMALIZERS)
def test_every_code_has_a_case(op_kind: str) -> None:
    given = {*MUTATIONS, *(case.code for case in ANCHORS if case.op_kind == op_kind)}
    assert codes_of(op_kind) - given == UNREACHED.get(op_kind, set())


def codes_of(op_kind: str) -> set[str]:
    """The codes in the functions of the match package that the op kind's normalizer calls."""
    forms = [form.read for form in FORMS if form.op_kind == op_kind]
    functions = [*forms, converted_sums] if forms else [NORMALIZERS[op_kind]]
    seen: set[FunctionType] = set()
    while functions:
        function = functions.pop()
        if isinstance(function, FunctionType) and function not in seen and ".match." in function.__module__:
            seen.add(function)
            names = vars(sys.modules[function.__module__])
            functions += [names[name] for name in names_in(function.__code__) if name in names]
    return {code for function in seen for code in _codes_in(function)}


def names_in(code: CodeType) -> Iterator[str]:
    """The names that a function uses, those in its comprehensions and inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def _codes_in(function: FunctionType) -> Iterator[str]:
    for part in ast.walk(ast.parse(inspect.getsource(function))):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "Refusal":
            assert isinstance(part.args[0], ast.Constant)
            yield str(part.args[0].value)
