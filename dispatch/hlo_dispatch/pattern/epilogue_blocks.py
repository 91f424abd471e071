"""Epilogue blocks: what may follow an anchor op inside its kernel, written once and named by anchors."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_dispatch.pattern.messages import suggest
from hlo_dispatch.pattern.schema import Epilogues
from hlo_dispatch.pattern.source import Keys, Source


class EpilogueBlocks:
    """The blocks of all files, by name, each with the source that has it."""

    def __init__(self, blocks: Mapping[str, tuple[Source, Epilogues]]) -> None:
        self._blocks = blocks

    def resolve(self, source: Source, path: Keys, written: Epilogues) -> Epilogues:
        """What is written at `path`, with the keys it lacks from the block that it extends, and so on.

        Raises:
            TableError: there is no such block, or it extends itself.
        """
        keys = written.model_dump(exclude_unset=True)
        passed: list[str] = []
        while written.extends is not None:
            name = written.extends
            location = source.location((*path, "extends"))
            if name not in self._blocks:
                raise source.error(location, f"unknown epilogue block {name!r}", suggest(name, self._blocks))
            if name in passed:
                problem = f"epilogue blocks extend each other: {', '.join((*passed, name))}"
                raise source.error(location, problem, "write the keys out in one of them")
            passed.append(name)
            source, written = self._blocks[name]
            path = ("epilogues", name)
            keys = written.model_dump(exclude_unset=True) | keys
        return Epilogues.model_validate({key: value for key, value in keys.items() if key != "extends"})
