"""The native module (kernels/python/module.cc): vendor kernels behind XLA's typed FFI."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from os import PathLike
from typing import Any

def load_onednn(path: str | PathLike[str], bind: bool, /) -> tuple[str, str, str]:
    """Open oneDNN for this process; ImportError says what is wrong with it.

    Returned are its version, what its threads run on, and why that is SYCL where it could be TBB, or nothing.
    With `bind` each thread of a SYCL runtime is kept on a processor of its own, if there are as many of both.
    """

def keep_signals() -> object:
    """Remember the process's signal handlers; when the object goes, those that libraries took over are put back.

    That is what changed to a handler in a library that was loaded meanwhile, or in the life of an earlier such object.
    """

def load_svml(path: str | PathLike[str], /) -> tuple[str, str]:
    """Open SVML for this process, whose functions of vectors kernels may call then; returns its version and runtime.

    ImportError says what is wrong with it.
    """

def load_onemkl(path: str | PathLike[str], /) -> tuple[str, str]:
    """Open oneMKL for this process, whose BLAS and LAPACK kernels may call then, and return its version and runtime.

    ImportError says what is wrong with it.
    """

def offer_scipy(addresses: dict[str, int], version: str, /) -> None:
    """Let kernels call the BLAS and LAPACK at these addresses (spotrf …), which JAX calls too."""

def plan(target: str, attributes: dict[str, Any], /) -> tuple[str, int, bool, int, str]:
    """Return what a library would use for a call.

    These are the implementation, scratch bytes, whether weights are reordered in every call, and, for a call whose
    ``weights_format`` is ``packed``, how many bytes packed weights have, and their layout (0 and nothing: the weights
    are read as they are).

    Raises NotImplementedError when it has nothing, ValueError when the attributes are malformed, ImportError when
    its library is not loaded.
    """

def load_with(load: Callable[[str], str], /) -> None:
    """Call `load` with a library's name when an executable first needs it; it returns why that fails, or nothing.

    The first function given stays.
    """

def ask(target: str, attributes: dict[str, Any], /) -> int:
    """Have the question that `plan` answers worked on while the caller goes on; returns its number."""

def wait(number: int, /) -> tuple[str, int, bool, int, str]:
    """Return or raise what `plan` would have, once for each number; ValueError if there is no such question."""

def finish() -> bool:
    """Drop questions that nobody has begun with, and wait for the others."""

def registry() -> dict[str, Any]:
    """Return what there is to be called: ``abi``, ``own_version`` and ``kernels``, a dict for each; loads nothing."""

def registrations() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the capsules for jax.ffi: ``types`` and ``targets``, by name, then by keyword or stage."""

def flat_graph(
    serialized: bytes,
    instructions: list[Any],
    called: Callable[[int], tuple[bytes, list[Any]]],
    shape_of: Callable[[bytes], Any],
    rearranged: Callable[[Any, Any], tuple[Any, Any, Any]],
    node_class: type[Any],
    fields: dict[str, tuple[int, ...] | None],
    layouts: AbstractSet[str],
    inserted_copy: str,
    /,
) -> tuple[list[Any], dict[int, Any], dict[int, Any], dict[int, list[Any]], dict[int, list[Any]], Any, list[Any]]:
    """Value numbering of a serialized HloComputationProto with its fusions expanded (analysis/flat_graph.py).

    Nodes are objects of `node_class`, which has slots; it is not called. Besides the nodes, operands first, there are
    (by the ids of instructions outside of fusions) results, messages, the nodes inside an expanded fusion and those
    that were moved before a widening; then the root, and all shapes, each once.

    Args:
        instructions: the computation's messages.
        called: id of a fused computation → the same two of that one.
        shape_of: serialized shape → its value; equal ones are one.
        rearranged: message of an instruction on a widened value, shape of the value before that → its message on that
            value, the message of the widening of that, the shape in between.
        fields: opcode → numbers of the fields on which a value depends besides shape and operands; None: all but name,
            id and source location. Instructions of other opcodes are nodes of their own.
        layouts: opcodes that are moved before a widening.
        inserted_copy: the opcode of copies outside of fusions.
    """

def opcodes_and_names(serialized: bytes, /) -> tuple[dict[int, frozenset[str]], set[str]]:
    """Of a serialized HloModuleProto: id of a computation → its opcodes; names of computations and instructions."""

def grow_region(
    entry: Any,
    is_owned: Callable[[Any], bool],
    is_materialized: Callable[[Any], bool],
    scalar_constant: Callable[[Any], float | None],
    opcodes: AbstractSet[str],
    types: AbstractSet[str],
    float_types: AbstractSet[str],
    most_nodes: int,
    most_exits: int,
    /,
) -> tuple[tuple[Any, ...], tuple[int, ...], list[float]]:
    """The nodes, the positions of exits among them, and the constants of an elementwise region (match/).

    Its nodes have one of these opcodes and element types, its exits one of these float types. A predicate that has two
    sets, `members` and `asked`, is not called: it is whether a node is a member, which is added to the others asked.
    """

def region_structure(
    entry: Any, nodes: tuple[Any, ...], scalar_constant: Callable[[Any], float | None], /
) -> tuple[object, ...]:
    """A key without names of the function that a region's nodes compute of its entry."""

def leaf_check(
    positional: tuple[Any, ...],
    named: tuple[Any, ...],
    types: tuple[type[Any], ...],
    is_deleted: Callable[[Any], bool],
    flatten: Callable[[Any], tuple[Iterable[Any], Any] | None],
    /,
) -> object:
    """What `checked_leaves` compares arguments with; automatic_freezing/leaf_check.py describes them.

    Args:
        types: of which leaves may be that may be any object; the caller holds them.
        flatten: the children and the metadata of a registered node.
    """

def checked_leaves(check: object, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> list[Any] | None:
    """The leaves of arguments; None where structure, objects or types are others, or a leaf that is to be a certain
    object is deleted.
    """

def other_leaves(check: object, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> list[Any] | None:
    """The leaves of arguments that may be any object; None where structure, objects or types are others, or one of
    the next 32 leaves that are to be certain objects is deleted: each call asks others.
    """

def library_path() -> str:
    """Return the file of the library that all of this is in, libhlo_dispatch_kernels.so."""

def raw_call(target: str, attributes: dict[str, Any], buffers: list[tuple[int, int]], /) -> object:
    """Build a call without XLA around it, for benchmarks. Raises what `plan` raises, ValueError for a wrong size.

    The buffers, of the operands and then of the result, are (address, bytes) and must outlive it; for address 0, or
    where the list is too short, each gets memory of its own.
    """

def run_raw(call: object, count: int, /) -> bool:
    """Run a raw call so often, waiting for each; not from two threads at once."""

def instruction_digest_input(
    serialized: bytes, digests: dict[int, bytes], plain: AbstractSet[str], is_large: Callable[[bytes], bool], /
) -> bytes:
    """All that a serialized HloInstructionProto computes, without its name, place and operands.

    `digests` are those of the computations that it calls; instructions of an opcode in `plain` have nothing but a
    shape, and so have constants for whose serialized shape `is_large` is true.
    """

def instruction_index(
    serialized: bytes, digests: dict[int, bytes], plain: AbstractSet[str], is_large: Callable[[bytes], bool], /
) -> tuple[dict[int, bytes], dict[int, tuple[int, ...]], dict[int, list[int]]]:
    """The same of each instruction of a serialized HloComputationProto, its operands and its users, by ids."""

def computation_digest_input(
    serialized: bytes, digests: dict[int, bytes], plain: AbstractSet[str], is_large: Callable[[bytes], bool], /
) -> bytes:
    """The same of each instruction of a serialized HloComputationProto, with the positions of its operands."""
