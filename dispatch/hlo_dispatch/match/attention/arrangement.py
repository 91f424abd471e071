"""Axis arrangement: maps the axes of an attention to the kernel's dimensions: batches, queries, keys, head size.

Queries are the longest axis that only they have. Their other axes (groups of heads that share keys) are batches along
which keys and values are broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_dispatch.analysis.strided_view import Dimension, merge_dimensions
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.attention.axes import KEY, QUERY, Axes
from hlo_dispatch.match.attention.operands import Products
from hlo_dispatch.match.attention.placement import NotAttention, Placement, placed
from hlo_dispatch.match.attention.steps import ScoreStep

_MAX_BATCHES = 4


class Arrangement:
    """The mapping of one attention's axes to the kernel's dimensions."""

    def __init__(self, axes: Axes, products: Products) -> None:
        self._axes = axes
        self._keys = sorted(axes.of_kind(KEY), key=lambda axis: -products.key.dimensions[axis][1])
        alone = [axis for axis in axes.of_kind(QUERY) if not products.key.dimensions[axis][1]]
        self._rows = max(alone, key=lambda axis: axes.sizes[axis], default=None)
        others = {*self._keys, self._rows}
        self._batches = [axis for axis, size in enumerate(axes.sizes) if size > 1 and axis not in others]

    @property
    def fixed(self) -> frozenset[int]:
        """The axes that must not be split."""
        return frozenset(axis for axis in (*self._keys, self._rows) if axis is not None)

    def legalized(self, step: ScoreStep) -> ScoreStep:
        """The step in a form that the kernel supports: a positional mask of another query axis is read from memory."""
        mask = step.mask
        if mask is None or mask.distance is None:
            return step
        if mask.query == self._rows:
            return step
        return replace(step, kind="select")

    def one_dimension(self, place: Placement, count: int) -> Placement:
        """The view with one dimension behind its axes.

        Raises:
            NotAttention: it has several.
        """
        last = merge_dimensions(reversed(place.dimensions[count:]))
        if last is None:
            sentence = f"the heads' dimensions do not lie behind one another in %{place.node.name}"
            raise NotAttention(Refusal("dot-dimensions", sentence, place.node.name))
        return placed(place.node, (*place.dimensions[:count], last), place.offset)

    def arranged(
        self, sources: Sequence[Placement], steps: Sequence[ScoreStep], result: Placement
    ) -> tuple[tuple[Placement, Placement, Placement], tuple[ScoreStep, ...], Placement]:
        """Sources, steps and result in the kernel's dimensions.

        Raises:
            NotAttention: keys are no single dimension, or there are too many batches.
        """
        query, key, value = sources
        read = [step.place for step in steps if step.place is not None]
        groups = self._groups([*sources, *read, result])
        final_query = self._place(query, groups, self._row(query), query.dimensions[-1])
        final_key = self._place(key, groups, self._key(key), key.dimensions[-1])
        final_value = self._place(value, groups, self._key(value), value.dimensions[-1])
        final_steps = tuple(
            step
            if step.place is None or step.kind not in ("add", "select")
            else replace(step, place=self._place(step.place, groups, self._row(step.place), self._key(step.place)))
            for step in steps
        )
        destination = self._place(result, groups, self._row(result), result.dimensions[-1])
        return (final_query, final_key, final_value), final_steps, destination

    def _place(self, place: Placement, groups: Sequence[Sequence[int]], *last: Dimension) -> Placement:
        batches = [merge_dimensions(reversed([place.dimensions[axis] for axis in group])) for group in groups]
        known = [batch for batch in batches if batch is not None]
        return placed(place.node, (*known, *last), place.offset)

    def _row(self, place: Placement) -> Dimension:
        return (1, 0) if self._rows is None else place.dimensions[self._rows]

    def _key(self, place: Placement) -> Dimension:
        found = merge_dimensions(reversed([place.dimensions[axis] for axis in self._keys])) if self._keys else (1, 0)
        if found is None:
            sentence = f"the keys' dimensions do not lie behind one another in %{place.node.name}"
            raise NotAttention(Refusal("dot-dimensions", sentence, place.node.name))
        return found

    def _groups(self, places: Sequence[Placement]) -> list[list[int]]:
        """The batches' axes, merged where that is possible in every view, if there are too many."""
        groups = [[axis] for axis in self._batches]
        while len(groups) > _MAX_BATCHES:
            pairs = ((a, b) for a in groups for b in groups if a is not b)
            pair = next((p for p in pairs if all(_are_one(place, [*p[0], *p[1]]) for place in places)), None)
            if pair is None:
                raise NotAttention(Refusal("rank-unsupported", f"{len(groups)} batch dimensions", places[0].node.name))
            groups = [[*pair[0], *pair[1]] if group is pair[0] else group for group in groups if group is not pair[1]]
        return groups


def _are_one(place: Placement, axes: Sequence[int]) -> bool:
    return merge_dimensions(reversed([place.dimensions[axis] for axis in axes])) is not None
