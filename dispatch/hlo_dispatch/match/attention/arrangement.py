"""Axis arrangement: maps the axes of an attention to the kernel's dimensions: batches, queries, keys, head size.

Queries are the longest axis that only they have. Their other axes (groups of heads that share keys) are batches along
which keys and values are broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_dispatch.analysis.strided_view import Dimension, View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.attention.axes import KEY, QUERY, Axes
from hlo_dispatch.match.attention.axis_views import NotAttention, axis_view, merged
from hlo_dispatch.match.attention.operands import Products
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
        return replace(step, kind="select", view=mask.view)

    def arranged(
        self, sources: Sequence[View], steps: Sequence[ScoreStep], result: View
    ) -> tuple[tuple[View, View, View], tuple[ScoreStep, ...], View]:
        """Sources, steps and result in the kernel's dimensions.

        Raises:
            NotAttention: keys are no single dimension, or there are too many batches.
        """
        query, key, value = sources
        read = [step.view for step in steps if step.view is not None]
        groups = self._groups([*sources, *read, result])
        final_query = self._place(query, groups, self._row(query), query.dimensions[-1])
        final_key = self._place(key, groups, self._key(key), key.dimensions[-1])
        final_value = self._place(value, groups, self._key(value), value.dimensions[-1])
        final_steps = tuple(
            step
            if step.view is None
            else replace(step, view=self._place(step.view, groups, self._row(step.view), self._key(step.view)))
            for step in steps
        )
        destination = self._place(result, groups, self._row(result), result.dimensions[-1])
        return (final_query, final_key, final_value), final_steps, destination

    def _place(self, view: View, groups: Sequence[Sequence[int]], *last: Dimension) -> View:
        known = [batch for group in groups if (batch := merged(view, group)) is not None]
        return axis_view(view.node, (*known, *last), view.offset)

    def _row(self, view: View) -> Dimension:
        return (1, 0) if self._rows is None else view.dimensions[self._rows]

    def _key(self, view: View) -> Dimension:
        found = merged(view, self._keys) if self._keys else (1, 0)
        if found is None:
            sentence = f"the keys' dimensions do not lie behind one another in %{view.node.name}"
            raise NotAttention(Refusal("dot-dimensions", sentence, view.node.name))
        return found

    def _groups(self, views: Sequence[View]) -> list[list[int]]:
        """The batches' axes, merged where that is possible in every view, if there are too many."""
        groups = [[axis] for axis in self._batches]
        while len(groups) > _MAX_BATCHES:
            pairs = ((a, b) for a in groups for b in groups if a is not b)
            pair = next((p for p in pairs if all(merged(view, [*p[0], *p[1]]) is not None for view in views)), None)
            if pair is None:
                raise NotAttention(Refusal("rank-unsupported", f"{len(groups)} batch dimensions", views[0].node.name))
            groups = [[*pair[0], *pair[1]] if group is pair[0] else group for group in groups if group is not pair[1]]
        return groups
