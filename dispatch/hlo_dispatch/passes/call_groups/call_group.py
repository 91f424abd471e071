"""Call group: member calls, the numbers of the values that they read and write, and the buffers of intermediate values.

Values are numbered: first the group's operands, then its results, then its intermediate values, which only members
read.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hlo_dispatch.analysis.buffer_assignment import BufferAssignment
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.kernel_call import KernelCall
from hlo_dispatch.ir.module import Module
from hlo_dispatch.report import CallSequence


@dataclass(frozen=True)
class Member:
    """A member call of a call group."""

    name: str
    """Name of the custom-call that it was."""
    call: KernelCall
    inputs: tuple[int, ...]
    """Numbers of the values that it reads."""
    output: int
    """Number of the value that it writes."""
    accumulated: int | None = None
    """Number of the value to which it adds its result in place; its attributes have the sum post-op then."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Numbers of all values that it reads, the one that it adds to included."""
        return self.inputs if self.accumulated is None else (*self.inputs, self.accumulated)

    @cached_property
    def attributes(self) -> Attributes:
        """Its attributes among those of the group call."""
        in_group: dict[str, Any] = {"target": self.call.target, "inputs": self.inputs, "output": self.output}
        if self.accumulated is not None:
            in_group["accumulated"] = self.accumulated
        return self.call.attributes.after(in_group)


@dataclass(frozen=True)
class CallGroup:
    """The call group that a custom-call computes."""

    name: str
    """The custom-call's name."""
    computation: str
    """Name of the computation that has it."""
    operands: int
    results: int
    members: tuple[Member, ...]
    """In the order in which they run."""
    buffers: BufferAssignment
    """Of the intermediate values."""

    @property
    def first_intermediate(self) -> int:
        """Number of the first intermediate value."""
        return self.operands + self.results

    @property
    def scratch(self) -> int:
        """Bytes of the scratch memory: members run one after the other and share theirs."""
        return self.buffers.bytes + max(member.call.scratch or 0 for member in self.members)

    @property
    def attributes(self) -> dict[str, Any]:
        """The custom-call's attributes besides the library's version."""
        members = {f"member_{step}": member.attributes for step, member in enumerate(self.members)}
        return {
            "scratch": self.scratch,
            "operands": self.operands,
            "results": self.results,
            "members": len(self.members),
            "offsets": self.buffers.offsets,
        } | members

    @property
    def report(self) -> CallSequence:
        intermediates = len(self.members) - self.results
        return CallSequence(self.name, self.computation, len(self.members), intermediates, self.scratch)


def rewrite_groups(
    module: Module, groups: MutableMapping[str, CallGroup], rewritten: Callable[[CallGroup], CallGroup]
) -> set[int]:
    """Rewrite a module's call groups, in place.

    Args:
        groups: by the names of their custom-calls; those that change are replaced.
        rewritten: returns the group that takes the place of one, or the same one.

    Returns:
        ids of the computations that changed.
    """
    changed = {name: now for name, group in groups.items() if (now := rewritten(group)) is not group}
    computations = {group.computation for group in changed.values()}
    edited: set[int] = set()
    for computation in module.proto.computations[:] if changed else ():
        if computation.name not in computations:
            continue
        edited.add(computation.id)
        for instruction in computation.instructions[:]:
            if (group := changed.get(instruction.name)) is not None:
                call = module.kernel_call(instruction)
                module.write(call.with_attributes({**call.attributes.mapping, **group.attributes}), instruction)
    groups.update(changed)
    return edited
