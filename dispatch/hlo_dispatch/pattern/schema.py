"""Table schema: the content of a table file as pydantic models. Imported only when a table is loaded.

Every field's description is the language's reference: patterns/README.md is checked against them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from hlo_dispatch.pattern.algorithms import MAX_POST_OPS

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
KernelName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Expression = Text | int | float
"""A formula; a number alone is one too."""
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Eltwise(_Entry):
    algorithm: Text = Field(description="oneDNN's name without dnnl_eltwise_")
    alpha: Expression | None = Field(None, description="an expression of the parameters, or a number")
    beta: Expression | None = Field(None, description="an expression of the parameters, or a number")


class ParameterEntry(_Entry):
    solve: Expression = Field(description="a formula over samples f(point) and the parameters before it")
    example: Finite = Field(description="a typical value; solve must find it again in the formula's own samples")


class ActivationEntry(_Entry):
    formula: Text = Field(description="what it computes, in x and the parameters")
    parameters: dict[Name, ParameterEntry] = Field({}, description="by name, in the order they are solved")
    require: Text | None = Field(None, description="condition on the parameters; other solutions are refused")
    onednn: Eltwise = Field(description="the post-op")
    origin: Text = Field(description="who computes it, and in which model")


class BinaryAlgorithm(_Entry):
    algorithm: Text = Field(description="oneDNN's name without dnnl_binary_")


class ReversedEntry(_Entry):
    first: Eltwise = Field(description="the eltwise post-op applied to y")
    then: Text = Field(description="the binary algorithm that follows")


class BinaryEntry(_Entry):
    opcode: Text = Field(description="the HLO opcode")
    formula: Text = Field(description="what it computes, in y (the running value) and other")
    commutative: bool = Field(False, description="whether y and other may change places")
    onednn: BinaryAlgorithm = Field(description="the post-op")
    reversed: ReversedEntry | None = Field(None, description="how other (op) y is computed instead")
    roles: dict[Literal["scalar", "per-channel", "per-row", "full"], Text] = Field(
        {}, description="what such an operand is called, by its broadcast"
    )
    origin: Text = Field(description="who computes it, and in which model")


class Epilogues(_Entry):
    extends: Name | None = Field(None, description="the block whose keys it has, but for those it writes itself")
    activations: Literal["all"] | list[Name] = Field("all", description="all, or names")
    binaries: Literal["all"] | list[Name] = Field("all", description="all, or names")
    longest_chain: Annotated[int, Field(ge=0, le=MAX_POST_OPS)] = Field(
        MAX_POST_OPS, description="how many post-ops in all; 0 for none, as for a kernel without post_op_0"
    )


def _block(written: Any) -> Any:
    """A block's name stands for what extends it and adds nothing."""
    return {"extends": written} if isinstance(written, str) else written


class NumericsEntry(_Entry):
    tolerance: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(description="relative to stock")
    why: Text = Field(description="why results differ from stock at all")


class AnchorEntry(_Entry):
    opcode: Text = Field(description="the HLO opcode")
    reading: Name | None = Field(
        None, description="its op kind; required where the opcode has several and none is the default"
    )
    kernel: KernelName = Field(description="the kernel that computes it, one for that op kind")
    rivals: list[KernelName] = Field(
        [], description="kernels that compute the same of the same attributes, which are measured as well"
    )
    formula: Text = Field(description="what it computes, for people")
    dtypes: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="element types that the kernel reads, numbers (it gives one of them, or f32) or s8 and u8;"
        " left out, its numerics'",
    )
    epilogues: Annotated[Epilogues | None, BeforeValidator(_block)] = Field(
        None, description="what may follow inside the kernel, or the name of a block; left out, all that it can take"
    )
    numerics: dict[Text, NumericsEntry] = Field(
        description="per element type of what it reads; where that is s8 and u8, of what it gives, f32 at least"
    )
    priority: int = Field(0, description="order of entries of one op kind, highest first; 0 for the shipped ones")
    origin: Text = Field(description="who computes it, and in which model")


class ScoreStepEntry(_Entry):
    formula: Text = Field(description="what becomes of {scores}, with its {value}, for people")
    attributes: dict[Name, Literal["value", "distance"]] = Field(
        description="value, the factor or what masked scores become, and a positional mask's distance, by the kernel's"
        " names; what describes an operand follows by itself"
    )


class KernelEntry(_Entry):
    target: Text | None = Field(
        None, description="the custom-call target; left out, the name, of the package's kernels hlo_dispatch. before it"
    )
    library: Text | None = Field(
        None, description="your own shared library: its path, from the table's folder; else the name's first part"
    )
    symbol: Text | None = Field(None, description="the XLA FFI handler in your own library")
    formula: Text = Field(description="what it computes, for people")
    operands: dict[Name, Text] = Field(description="by name, in order, with their shapes")
    describes: dict[Name, list[Literal["type", "dims", "strides", "offset", "elements"]]] = Field(
        {}, description="operands, and dst, the result: what attributes say of each, src_dims and so on"
    )
    post_ops: Text | None = Field(None, description="its epilogue, for people: post_op_0 and so on; left out: none")
    score_steps: dict[Literal["scale", "add", "select", "causal", "window", "softcap"], ScoreStepEntry] = Field(
        {}, description="of an attention: the kinds of steps between its products: score_0 and so on; left out: none"
    )
    attributes: dict[Name, Text] = Field({}, description="all others, by name, with type and meaning")


class CallEntry(_Entry):
    name: KernelName = Field(description="one of the kernels")
    operands: dict[Name, Name] = Field(description="the kernel's operand: the captured value")
    attributes: dict[Name, Any] = Field(
        {}, description="the kernel's attribute: a literal, or a fact of a value; what it describes follows by itself"
    )
    scratch: Expression | None = Field(
        None, description="bytes of working memory, a number or a fact; the call then has a second result, u8[bytes]"
    )


class PatternEntry(_Entry):
    formula: Text = Field(description="what it computes, for people")
    match: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="an expression, or a list of spellings"
    )
    where: dict[Name, dict[Name, Any]] = Field({}, description="by value: what is demanded of it")
    kernel: CallEntry = Field(description="the call that computes it")
    numerics: Annotated[dict[Text, NumericsEntry], Field(min_length=1)] = Field(
        description="per element type of the result"
    )
    priority: int | None = Field(None, description="who goes first; by default the number of operations it covers")
    near_misses: bool = Field(True, description="whether reports say where one stopped that matches nowhere")
    origin: Text = Field(description="who computes it, and in which model")


class RoutineEntry(_Entry):
    formula: Text = Field(description="what it computes, for people")
    opcode: Literal["custom-call", "dot", "fft", "gather", "reduce-window", "scatter", "sort", "while"] = Field(
        "custom-call", description="the HLO opcode"
    )
    targets: dict[Text, Text] = Field({}, description="per element type: the custom-call's target as JAX writes it")
    kernels: Annotated[list[KernelName], Field(min_length=1)] = Field(description="the kernels that compute it")
    operands: Annotated[dict[Name, Literal["matrix", "array", "vector"]], Field(min_length=1)] = Field(
        description="by name, in order: a matrix may be read in either order, an array in any, a vector lies as it is"
    )
    results: Annotated[dict[Name, Literal["matrix", "array", "vector"]], Field(min_length=1)] = Field(
        description="by name, in order, likewise"
    )
    options: list[Name] = Field([], description="attributes of the instruction that the kernel reads too")
    symmetrised: Name | None = Field(None, description="the operand that may be read as (a + transpose(a)) / 2")
    factors_of: list[Name] = Field(
        [], description="routines: only where an operand is the factor that one of them gives, half of it zeros"
    )
    numerics: Annotated[dict[Text, NumericsEntry], Field(min_length=1)] = Field(
        description="per element type; the residual, in units of the matrix's size and norm"
    )
    origin: Text = Field(description="who computes it, and in which model")


class _RegionEntry(_Entry):
    """What entries of regions say that one kernel computes as a whole."""

    formula: Text = Field(description="what it computes, for people")
    kernel: KernelName = Field(description="the kernel that computes it")
    numerics: Annotated[dict[Text, NumericsEntry], Field(min_length=1)] = Field(
        description="per element type of what it reads and gives; the coarsest counts"
    )
    origin: Text = Field(description="who computes it, and in which model")


class AttentionEntry(_RegionEntry):
    kernel: KernelName = Field(description="the kernel that computes it, own.attention")


class RecurrentEntry(_RegionEntry):
    kernel: KernelName = Field(description="the kernel that computes it, onednn.recurrent")


class GroupNormEntry(_RegionEntry):
    kernel: KernelName = Field(description="the kernel that computes it, own.group_norm")


class ElementwiseEntry(_RegionEntry):
    kernel: KernelName = Field(description="the kernel that computes it, svml.elementwise")
    numerics: Annotated[dict[Text, NumericsEntry], Field(min_length=1)] = Field(
        description="per element type of the result"
    )


class TableFile(_Entry):
    version: Annotated[int, Field(ge=1, le=1)] = Field(description="1, the version of the language")
    activations: dict[Name, ActivationEntry] = Field({}, description="functions of one variable")
    binaries: dict[Name, BinaryEntry] = Field({}, description="operations with a second operand")
    epilogues: dict[Name, Epilogues] = Field({}, description="blocks of what may follow inside a kernel, for anchors")
    anchors: dict[Name, AnchorEntry] = Field({}, description="instructions a kernel computes")
    kernels: dict[KernelName, KernelEntry] = Field({}, description="custom-call targets")
    patterns: dict[Name, PatternEntry] = Field({}, description="structural expressions and the kernels they become")
    routines: dict[Name, RoutineEntry] = Field({}, description="library calls and transforms that a kernel computes")
    attentions: dict[Name, AttentionEntry] = Field({}, description="a softmax between two products")
    recurrents: dict[Name, RecurrentEntry] = Field({}, description="a loop over the steps of a recurrent layer")
    group_norms: dict[Name, GroupNormEntry] = Field({}, description="a normalization over groups of channels")
    elementwise: dict[Name, ElementwiseEntry] = Field(
        {}, description="elementwise instructions around functions that XLA computes number by number"
    )
