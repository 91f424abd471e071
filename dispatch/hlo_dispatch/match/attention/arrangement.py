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
from hlo_dispatch.match.attention.placement import NotAttention, Placement, make_placement
from hlo_dispatch.match.attention.steps import ScoreStep

_MAX_BATCHES = 4


class AxisArrangement:
    """The mapping of one attention's axes to the kernel's dimensions."""

    def __init__(self, axes: Axes, products: Products) -> None:
        self._axes = axes
        self._keys = sorted(axes.of_kind(KEY), key=lambda axis: -products.key.dimensions[axis][1])
        alone = [axis for axis in axes.of_kind(QUERY) if not products.key.dimensions[axis][1]]
        self._rows = max(alone, key=lambda axis: axes.sizes[axis], default=None)
        others = {*self._keys, self._rows}
        self._batches = [axis for axis, size in enumerate(axes.sizes) if size > 1 and axis not in others]

    @property
    def unsplittable(self) -> frozenset[int]:
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

    def with_one_inner_dimension(self, placement: Placement, count: int) -> Placement:
        """The view with one dimension behind its axes.

        Raises:
            NotAttention: it has several.
        """
        last = merge_dimensions(reversed(placement.dimensions[count:]))
        if last is None:
            sentence = f"the heads' dimensions do not lie behind one another in %{placement.node.name}"
            raise NotAttention(Refusal("dot-dimensions", sentence, placement.node.name))
        return make_placement(placement.node, (*placement.dimensions[:count], last), placement.offset)

    def arranged(
        self, sources: Sequence[Placement], steps: Sequence[ScoreStep], result: Placement
    ) -> tuple[tuple[Placement, Placement, Placement], tuple[ScoreStep, ...], Placement]:
        """Sources, steps and result in the kernel's dimensions.

        Raises:
            NotAttention: keys are no single dimension, or there are too many batches.
        """
        query, key, value = sources
        read = [step.placement for step in steps if step.placement is not None]
        groups = self._groups([*sources, *read, result])
        final_query = self._place(query, groups, self._row(query), query.dimensions[-1])
        final_key = self._place(key, groups, self._key(key), key.dimensions[-1])
        final_value = self._place(value, groups, self._key(value), value.dimensions[-1])
        final_steps = tuple(
            step
            if step.placement is None or step.kind not in ("add", "select")
            else replace(
                step,
                placement=self._place(step.placement, groups, self._row(step.placement), self._key(step.placement)),
            )
            for step in steps
        )
        destination = self._place(result, groups, self._row(result), result.dimensions[-1])
        return (final_query, final_key, final_value), final_steps, destination

    def _place(self, placement: Placement, groups: Sequence[Sequence[int]], *last: Dimension) -> Placement:
        batches = [merge_dimensions(reversed([placement.dimensions[axis] for axis in group])) for group in groups]
        known = [batch for batch in batches if batch is not None]
        return make_placement(placement.node, (*known, *last), placement.offset)

    def _row(self, placement: Placement) -> Dimension:
        return (1, 0) if self._rows is None else placement.dimensions[self._rows]

    def _key(self, placement: Placement) -> Dimension:
        found = (
            merge_dimensions(reversed([placement.dimensions[axis] for axis in self._keys])) if self._keys else (1, 0)
        )
        if found is None:
            sentence = f"the keys' dimensions do not lie behind one another in %{placement.node.name}"
            raise NotAttention(Refusal("dot-dimensions", sentence, placement.node.name))
        return found

    def _groups(self, placements: Sequence[Placement]) -> list[list[int]]:
        """The batches' axes, merged where that is possible in every view, if there are too many."""
        groups = [[axis] for axis in self._batches]
        while len(groups) > _MAX_BATCHES:
            pairs = ((a, b) for a in groups for b in groups if a is not b)
            pair = next(
                (p for p in pairs if all(_are_one(placement, [*p[0], *p[1]]) for placement in placements)), None
            )
            if pair is None:
                raise NotAttention(
                    Refusal("rank-unsupported", f"{len(groups)} batch dimensions", placements[0].node.name)
                )
            groups = [[*pair[0], *pair[1]] if group is pair[0] else group for group in groups if group is not pair[1]]
        return groups


def _are_one(placement: Placement, axes: Sequence[int]) -> bool:
    return merge_dimensions(reversed([placement.dimensions[axis] for axis in axes])) is not None
