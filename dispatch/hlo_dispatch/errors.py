"""Exceptions and refusals of the whole package.

An exception means our bug or an author's mistake (a bad table, a bad module, a wrong flag). Not being
able to dispatch a region is neither: it is a :class:`Refusal`, a value with a code, a sentence and the
instruction at fault.
"""

from __future__ import annotations

from typing import NoReturn


class HloDispatchError(Exception):
    """Base of all exceptions of this package; the command line prints it and exits with `exit_status`."""

    exit_status = 2


class TableError(HloDispatchError):
    """Error in a pattern table, with its place (file:line:column) and advice."""

    def __init__(self, file: str, line: int, column: int, problem: str, advice: str = "") -> None:
        self.file, self.line, self.column = file, line, column
        self.problem, self.advice = problem, advice
        super().__init__(f"{file}:{line}:{column}: {problem}" + (f"; {advice}" if advice else ""))


class ModuleError(HloDispatchError):
    """HLO text or a serialized module that does not parse, or that our verifier finds broken."""


class LibraryError(HloDispatchError):
    """A vendor library that is present but cannot be used."""


class PolicyError(HloDispatchError):
    """An unknown policy or platform; the message lists the valid ones."""


class FreezeError(HloDispatchError):
    """A function that cannot be frozen, or a call or an update that a frozen one cannot take."""


# Every refusal code, with what it means in general; a Refusal's own sentence is the particular case.
REFUSALS: dict[str, str] = {
    "dtype-unsupported": "no kernel computes in this element type",
    "zero-size": "a dimension is zero: there is nothing to compute",
    "dynamic-shape": "a dimension is only known at run time",
    "control-dependency": "the instruction has control dependencies that a custom-call cannot carry",
    "negative-padding": "negative padding crops the input, which the kernel cannot do",
    "base-dilation": "the input is dilated (a transposed convolution)",
    "window-reversal": "the window is reversed",
    "batch-groups": "batch groups are not supported by the kernel",
    "reducer-unsupported": "the windows are reduced by something else than a maximum or a sum",
    "not-in-memory": "an operand exists only inside a fusion, and materializing it would cost more than it saves",
    "empty-window": "some windows contain only padding",
    "rank-unsupported": "the kernel has no implementation for this number of dimensions",
    "layout-unsupported": "the memory layout cannot be described by plain strides",
    "dot-dimensions": "the dot's dimensions cannot be read as a batched matrix product",
    "precision-unsupported": "the requested precision algorithm is not what the kernel computes",
    "attention-softmax": "the ops between two products are no supported softmax over all keys",
    "attention-step": "the scores go through an op that no step of the kernel computes",
    "value-needed": "a value that the kernel does not materialize is used elsewhere",
    "small-call": "a kernel call would undo one of XLA's small calls, which is not expected to pay",
    "kernel-unsupported": "the vendor library has no primitive for this region",
    "reference-kernel": "the vendor library would fall back to its slow reference implementation",
    "library-missing": "the vendor library is not available",
    "recurrent-cell": "the loop computes something besides a recurrent layer",
    "outranked": "a larger match owns some of these instructions",
    "near-miss": "a pattern nearly matched",
    "policy": "the policy left this region to XLA",
    "unmeasurable": "the region cannot be run alone, so its speed is unknown",
    "slower": "the kernel was measured on this machine and XLA was as fast or faster",
    "wrong-result": "the kernel's result differed from XLA's when it was measured",
    "rewrite-unsupported": "the surrounding instructions cannot be rebuilt without this region",
}


class NoTruthValue:
    """Base of values without a truth value, because it would mislead; asking for it is an error.

    Where a refusal is false, `refusal or next_question()` loses it; where it is true, `if answer:` takes it for what
    was asked for.
    """

    def __bool__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} is neither true nor false: ask isinstance(answer, {name}), or whether it is None")


class _Value(NoTruthValue):
    """Base of values that are equal where their attributes are.

    Without dataclasses, which `hlo-dispatch run` would have to import before the program starts.
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class Refusal(_Value):
    """Refusal: why a region stays with XLA."""

    def __init__(self, code: str, sentence: str, instruction: str = "") -> None:
        """
        Args:
            code: one of REFUSALS.
            sentence: the particular case, for a person.
            instruction: name of the guilty instruction.
        """
        if code not in REFUSALS:
            raise ValueError(f"unknown refusal code {code!r}")
        self.code, self.sentence, self.instruction = code, sentence, instruction

    def __str__(self) -> str:
        where = f" (%{self.instruction})" if self.instruction else ""
        return f"{self.code}: {self.sentence}{where}"


class Unavailable(_Value):
    """A vendor library that cannot be used, with the reason and what to do in one sentence."""

    def __init__(self, name: str, sentence: str) -> None:
        self.name, self.sentence = name, sentence
