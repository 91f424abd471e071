"""Table builder: resolves names, compiles formulas and proves solutions of schema-checked entries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hlo_dispatch.errors import TableError
from hlo_dispatch.pattern.algorithms import ANCHOR_DTYPES, BINARY, DTYPES, ELTWISE, LIBRARIES, OPCODES, meaning
from hlo_dispatch.pattern.epilogue_blocks import EpilogueBlocks
from hlo_dispatch.pattern.facts import TYPES, declared_type
from hlo_dispatch.pattern.formula import Formula, FormulaError, parse
from hlo_dispatch.pattern.kernel_attributes import (
    POST_OPS,
    declared_attributes,
    declared_operands,
    routine_attributes,
)
from hlo_dispatch.pattern.messages import suggest
from hlo_dispatch.pattern.op_kinds import (
    ANCHOR_OPCODES,
    ATTENTION_KERNELS,
    ELEMENTWISE_KERNELS,
    FORMER_OP_KINDS,
    GROUP_NORM_KERNELS,
    INTEGER_TYPES,
    OP_KINDS,
    RECURRENT_KERNELS,
    OpKind,
    default_op_kind,
)
from hlo_dispatch.pattern.prove import binary_proofs, proofs
from hlo_dispatch.pattern.schema import (
    ActivationEntry,
    AnchorEntry,
    AttentionEntry,
    BinaryEntry,
    ElementwiseEntry,
    Eltwise,
    Epilogues,
    GroupNormEntry,
    KernelEntry,
    RecurrentEntry,
    RoutineEntry,
)
from hlo_dispatch.pattern.source import Keys, Source
from hlo_dispatch.pattern.table import (
    Activation,
    AnchorKind,
    Attention,
    Binary,
    Elementwise,
    EltwiseBinding,
    GroupNorm,
    KernelBinding,
    Numerics,
    Parameter,
    Recurrent,
    Reversed,
    Routine,
    ScoreStepKind,
    SourceLocation,
)

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PREFIX = "hlo_dispatch."
"""What the targets of the package's kernels begin with."""
_RESERVED = ("x", "f", "pi", "inf")


class Builder:
    """Builder of one file's entries; every failure is a TableError at the offending character."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def activation(self, name: str, entry: ActivationEntry) -> Activation:
        path: Keys = ("activations", name)
        self._parameter_names(path, entry)
        formula = self._formula((*path, "formula"), entry.formula, ("x", *entry.parameters))
        unused = [p for p in entry.parameters if p not in formula.names]
        if unused:
            location = self.source.key_location((*path, "parameters", unused[0]))
            raise self.source.error(location, f"the formula does not use {unused[0]!r}", "use it or remove it")
        if "x" not in formula.names:
            raise self._error((*path, "formula"), "the formula does not use x", "a constant is not an activation")
        parameters: list[Parameter] = []
        for key, parameter in entry.parameters.items():
            known = [earlier.name for earlier in parameters]
            where = (*path, "parameters", key, "solve")
            solved = self._formula(where, parameter.solve, known, samples=True)
            parameters.append(Parameter(key, solved, parameter.example))
        require = None
        if entry.require is not None:
            require = self._formula((*path, "require"), entry.require, entry.parameters, condition=True)
        binding = self._eltwise((*path, "onednn"), entry.onednn, entry.parameters)
        activation = Activation(
            name, formula, tuple(parameters), require, binding, entry.origin, self.source.key_location(path)
        )
        for suffix, problem, advice in proofs(activation):
            raise self._error((*path, *suffix), problem, advice)
        return activation

    def binary(self, name: str, entry: BinaryEntry) -> Binary:
        path: Keys = ("binaries", name)
        self._one_of((*path, "opcode"), entry.opcode, OPCODES, "opcode")
        self._one_of((*path, "onednn", "algorithm"), entry.onednn.algorithm, BINARY, "binary algorithm")
        formula = self._formula((*path, "formula"), entry.formula, ("y", "other"))
        if formula.names != frozenset(("y", "other")):
            raise self._error((*path, "formula"), "the formula does not use both y and other", "it has two operands")
        backwards = None
        if entry.reversed is not None:
            where = (*path, "reversed")
            self._one_of((*where, "then"), entry.reversed.then, BINARY, "binary algorithm")
            first = self._eltwise((*where, "first"), entry.reversed.first, ())
            backwards = Reversed(first, entry.reversed.then)
        binary = Binary(
            name, entry.opcode, entry.onednn.algorithm, entry.commutative, backwards, formula,
            dict[str, str](entry.roles.items()), entry.origin, self.source.key_location(path),
        )  # fmt: skip
        for suffix, problem, advice in binary_proofs(binary):
            raise self._error((*path, *suffix), problem, advice)
        return binary

    def epilogue_block(
        self, name: str, entry: Epilogues, blocks: EpilogueBlocks, activations: list[str], binaries: list[str]
    ) -> None:
        """Checks a block, named by an anchor or not."""
        path: Keys = ("epilogues", name)
        blocks.resolve(self.source, path, entry)
        self._chosen((*path, "activations"), entry.activations, activations, "activation")
        self._chosen((*path, "binaries"), entry.binaries, binaries, "binary epilogue")

    def anchor(
        self,
        name: str,
        entry: AnchorEntry,
        kernels: Mapping[str, KernelBinding],
        activations: Iterable[str],
        binaries: Iterable[str],
        blocks: EpilogueBlocks,
    ) -> AnchorKind:
        """Builds an anchor's entry. The names are those of all files: an anchor may allow what another file defines."""
        path: Keys = ("anchors", name)
        self._one_of((*path, "opcode"), entry.opcode, ANCHOR_OPCODES, "anchor opcode")
        self._one_of((*path, "kernel"), entry.kernel, kernels, "kernel")
        op_kind = self._op_kind(path, entry)
        for index, rival in enumerate(entry.rivals):
            self._one_of((*path, "rivals", index), rival, kernels, "kernel")
            self._check_kernel_takes((*path, "rivals", index), rival, OP_KINDS[op_kind])
        where_dtypes = (*path, "numerics" if entry.dtypes is None else "dtypes")
        dtypes = tuple(entry.numerics if entry.dtypes is None else entry.dtypes)
        sums = [dtype for dtype in dtypes if dtype in INTEGER_TYPES and OP_KINDS[op_kind].integer_results]
        for index, dtype in enumerate(dtypes):
            key = dtype if entry.dtypes is None else index
            self._one_of((*where_dtypes, key), dtype, ANCHOR_DTYPES, "element type")
        for dtype in (*(dtype for dtype in dtypes if dtype not in sums), *("f32" for _ in sums[:1])):
            if dtype not in entry.numerics:
                advice = f"add {dtype}: {{tolerance: ..., why: ...}}"
                raise self._error((*path, "numerics"), f"no numerics for {dtype}", advice)
        for dtype in entry.numerics:
            if dtype not in dtypes and not sums:
                location = self.source.key_location((*path, "numerics", dtype))
                problem = f"numerics for {dtype!r}, which is not in dtypes"
                raise self.source.error(location, problem, suggest(dtype, dtypes))
        if entry.reading in FORMER_OP_KINDS:
            dtypes = tuple(sorted(INTEGER_TYPES))
        takes_post_ops = POST_OPS in kernels[entry.kernel].attributes
        where = (*path, "epilogues")
        written = entry.epilogues or Epilogues.model_validate({} if takes_post_ops else {"longest_chain": 0})
        epilogues = blocks.resolve(self.source, where, written)
        allowed = self._chosen((*where, "activations"), epilogues.activations, list(activations), "activation")
        operations = self._chosen((*where, "binaries"), epilogues.binaries, list(binaries), "binary epilogue")
        longest = epilogues.longest_chain
        if longest and not takes_post_ops:
            advice = "leave epilogues out, or write longest_chain: 0"
            raise self.source.error(self.source.key_location(where), f"{entry.kernel} has no post-ops", advice)
        if not longest:
            allowed = operations = ()
        numerics = {dtype: Numerics(n.tolerance, n.why) for dtype, n in entry.numerics.items()}
        return AnchorKind(
            name, entry.opcode, op_kind, entry.kernel, tuple(entry.rivals), dtypes, allowed, operations,
            longest, entry.priority, numerics, entry.formula, entry.origin, self.source.key_location(path),
        )  # fmt: skip

    def _op_kind(self, path: Keys, entry: AnchorEntry) -> str:
        """The entry's op kind: the one it names, else the only or default one of its opcode."""
        known, usual = ANCHOR_OPCODES[entry.opcode], default_op_kind(entry.opcode)
        written = FORMER_OP_KINDS.get(entry.reading or "", entry.reading)
        if written is not None:
            self._one_of((*path, "reading"), written, known, f"op kind of a {entry.opcode}")
        elif usual is None:
            advice = f"op kinds of a {entry.opcode}: {', '.join(known)}"
            raise self.source.error(self.source.key_location(path), f"{path[-1]} has no 'reading'", advice)
        op_kind = OP_KINDS[written or usual or known[0]]
        self._check_kernel_takes((*path, "kernel"), entry.kernel, op_kind)
        return op_kind.name

    def _check_kernel_takes(self, path: Keys, kernel: str, op_kind: OpKind) -> None:
        if kernel not in op_kind.kernels:
            problem = f"{kernel} does not take the op kind {op_kind.name}"
            raise self._error(path, problem, f"kernels of that op kind: {', '.join(op_kind.kernels)}")

    def kernel(self, name: str, entry: KernelEntry) -> KernelBinding:
        path: Keys = ("kernels", name)
        path_of_library = symbol_location = None
        library, target = entry.library or name.partition(".")[0], entry.target or name
        if entry.symbol is not None:
            path_of_library = self._own_library(path, entry)
            symbol_location = self.source.location((*path, "symbol"))
        else:
            if _is_file_name(library):
                location = self.source.key_location(path)
                advice = "add symbol: the handler's name in the library"
                raise self.source.error(location, f"{name} has no 'symbol'", advice)
            self._one_of((*path, "library"), library, LIBRARIES, "library")
            target = entry.target or PREFIX + name
        steps = {kind: ScoreStepKind(step.formula, step.attributes) for kind, step in entry.score_steps.items()}
        return KernelBinding(
            name, target, library, entry.formula, declared_operands(entry.post_ops, entry.operands),
            declared_attributes(entry, is_shipped=entry.symbol is None), entry.describes, steps,
            self.source.key_location(path), entry.symbol or "", path_of_library, symbol_location,
        )  # fmt: skip

    def routine_kernels(self, name: str, entry: RoutineEntry) -> Iterator[KernelBinding]:
        """The kernels of a shipped routine: all alike, one for each library that computes it."""
        attributes = routine_attributes(
            (*entry.operands, *entry.results), entry.numerics, entry.options, entry.symmetrised
        )
        location = self.source.key_location(("routines", name))
        for kernel in entry.kernels:
            library = kernel.partition(".")[0]
            yield KernelBinding(
                kernel, PREFIX + kernel, library, entry.formula, entry.operands, attributes, {}, {}, location
            )

    def routine(self, name: str, entry: RoutineEntry, kernels: Iterable[str], routines: Iterable[str]) -> Routine:
        path: Keys = ("routines", name)
        known = list(kernels)
        for index, factored in enumerate(entry.factors_of):
            self._one_of((*path, "factors_of", index), factored, routines, "routine")
        for index, kernel in enumerate(entry.kernels):
            self._one_of((*path, "kernels", index), kernel, known, "kernel")
        if (entry.opcode == "custom-call") != bool(entry.targets):
            advice = "a custom-call is told by its target, another opcode by itself"
            raise self.source.error(self.source.key_location(path), f"{name}: opcode and targets do not fit", advice)
        for dtype in entry.targets:
            if dtype not in entry.numerics:
                location = self.source.key_location((*path, "targets", dtype))
                raise self.source.error(
                    location, f"no numerics for {dtype}", f"add {dtype}: {{tolerance: ..., why: ...}}"
                )
        if entry.symmetrised is not None:
            self._one_of((*path, "symmetrised"), entry.symmetrised, entry.operands, "operand")
        numerics = {dtype: Numerics(n.tolerance, n.why) for dtype, n in entry.numerics.items()}
        return Routine(
            name, entry.opcode, entry.targets, tuple(entry.kernels), entry.operands, entry.results,
            tuple(entry.options), entry.symmetrised or "", tuple(entry.factors_of), numerics, entry.formula,
            entry.origin, self.source.key_location(path),
        )  # fmt: skip

    def attention(self, name: str, entry: AttentionEntry, kernels: Mapping[str, KernelBinding]) -> Attention:
        path: Keys = ("attentions", name)
        described = self._region(path, entry, kernels, ATTENTION_KERNELS, "attention kernel", DTYPES)
        missing = next((dtype for dtype in DTYPES if dtype not in entry.numerics), None)
        if missing is not None:
            advice = f"add {missing}: {{tolerance: ..., why: ...}}"
            raise self._error((*path, "numerics"), f"no numerics for {missing}", advice)
        return Attention(*described, kernels[entry.kernel].score_steps)

    def recurrent(self, name: str, entry: RecurrentEntry, kernels: Iterable[str]) -> Recurrent:
        path: Keys = ("recurrents", name)
        return Recurrent(*self._region(path, entry, kernels, RECURRENT_KERNELS, "recurrent kernel", DTYPES))

    def group_norm(self, name: str, entry: GroupNormEntry, kernels: Iterable[str]) -> GroupNorm:
        path: Keys = ("group_norms", name)
        return GroupNorm(*self._region(path, entry, kernels, GROUP_NORM_KERNELS, "group norm kernel", DTYPES))

    def elementwise(self, name: str, entry: ElementwiseEntry, kernels: Iterable[str]) -> Elementwise:
        path: Keys = ("elementwise", name)
        dtypes = (*DTYPES, "f64")
        return Elementwise(*self._region(path, entry, kernels, ELEMENTWISE_KERNELS, "elementwise kernel", dtypes))

    def _region(
        self, path: Keys, entry: AttentionEntry | ElementwiseEntry | GroupNormEntry | RecurrentEntry,
        kernels: Iterable[str], fitting: Iterable[str], what: str, dtypes: Collection[str],
    ) -> tuple[str, str, dict[str, Numerics], str, str, SourceLocation]:  # fmt: skip
        """What tables say of each region that a kernel computes as a whole: one of the `fitting` kernels."""
        self._one_of((*path, "kernel"), entry.kernel, kernels, "kernel")
        self._one_of((*path, "kernel"), entry.kernel, fitting, what)
        for dtype in entry.numerics:
            if dtype not in dtypes:
                location = self.source.key_location((*path, "numerics", dtype))
                raise self.source.error(location, f"unknown element type {dtype!r}", suggest(dtype, dtypes))
        numerics = {dtype: Numerics(n.tolerance, n.why) for dtype, n in entry.numerics.items()}
        return str(path[-1]), entry.kernel, numerics, entry.formula, entry.origin, self.source.key_location(path)

    def _own_library(self, path: Keys, entry: KernelEntry) -> Path:
        """The path of the user's library, which is looked up but not loaded."""
        if entry.library is None or not _is_file_name(entry.library):
            advice = "a kernel with a symbol is in a library such as ./libmine.so"
            raise self._error((*path, "library"), f"{entry.library!r} is not a path", advice)
        library = (self.source.path.parent / Path(entry.library).expanduser()).resolve()
        if not library.is_file():
            raise self._error((*path, "library"), f"there is no {library}", "build it, or correct the path")
        if not _SYMBOL.fullmatch(str(entry.symbol)):
            advice = "it is a C name such as MyHandler"
            raise self._error((*path, "symbol"), f"{entry.symbol!r} is not a symbol", advice)
        if entry.target is not None and entry.target.startswith(PREFIX):
            problem = f"{entry.target} is a target of the package"
            raise self._error((*path, "target"), problem, "begin it with a name of your own")
        for attribute, text in entry.attributes.items():
            if not declared_type(text):
                problem = f"{attribute} has no type"
                raise self._error((*path, "attributes", attribute), problem, f"begin with one of: {', '.join(TYPES)}")
        return library

    def _parameter_names(self, path: Keys, entry: ActivationEntry) -> None:
        for name in entry.parameters:
            if name in _RESERVED:
                location = self.source.key_location((*path, "parameters", name))
                raise self.source.error(
                    location, f"{name!r} cannot be a parameter", "the language uses that name itself"
                )

    def _eltwise(self, path: Keys, entry: Eltwise, names: Iterable[str]) -> EltwiseBinding:
        self._one_of((*path, "algorithm"), entry.algorithm, ELTWISE, "eltwise algorithm")
        reads = meaning(entry.algorithm).names
        numbers: dict[str, Formula | None] = {}
        for key in ("alpha", "beta"):
            value = getattr(entry, key)
            if value is None and key in reads:
                raise self._error((*path, "algorithm"), f"{entry.algorithm} needs {key}", f"add {key}: ...")
            if value is not None and key not in reads:
                location = self.source.key_location((*path, key))
                raise self.source.error(location, f"{entry.algorithm} reads no {key}", "remove it")
            numbers[key] = None if value is None else self._formula((*path, key), value, names)
        return EltwiseBinding(entry.algorithm, numbers["alpha"], numbers["beta"])

    def _formula(self, path: Keys, text: Any, names: Iterable[str], **options: bool) -> Formula:
        try:
            return parse(str(text), names, **options)
        except FormulaError as error:
            location = self.source.place_within(path, error.offset)
            raise self.source.error(location, f"bad formula: {error.problem}", error.advice) from None

    def _one_of(self, path: Keys, word: str, known: Iterable[str], what: str) -> None:
        known = list(known)
        if word not in known:
            raise self._error(path, f"unknown {what} {word!r}", suggest(word, known))

    def _chosen(self, path: Keys, names: str | list[str], known: list[str], what: str) -> tuple[str, ...]:
        if names == "all":
            return tuple(known)
        for index, name in enumerate(names):
            self._one_of((*path, index), name, known, what)
        return tuple(names)

    def _error(self, path: Keys, problem: str, advice: str = "") -> TableError:
        location = self.source.location(path)
        return self.source.error(location, problem, advice)


def _is_file_name(library: str) -> bool:
    return "/" in library or library.endswith((".so", ".dylib"))
