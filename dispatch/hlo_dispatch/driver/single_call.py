"""Single-call pipeline: rewrites an extracted module so that it has one kernel call, in a given variant."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.match import Match
from hlo_dispatch.pipeline import FROZEN, REGION, Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.candidate import DefaultVariant, KernelSupportQuery, variant_named
from hlo_dispatch.selection.decide import Decision, MeasurementLookup
from hlo_dispatch.selection.family_cost_models import cost_model_of

_REFUSED = Decision(None, "", Refusal("policy", "another region is being measured"))


@dataclass(frozen=True)
class SingleCall:
    """A `decide` that dispatches one match, if its default is `expected_default`, as `variant`."""

    anchor: str
    """Name of the match's instruction."""
    expected_default: DefaultVariant
    variant: str

    def __call__(
        self,
        match: Match,
        machine: Machine,
        policy: str,
        support_query: KernelSupportQuery,
        lookup: MeasurementLookup,
    ) -> Decision:
        """Decide on one match, as a planner's `decide`."""
        # No other match owns a part of the epilogue here, so the match may be longer than in its program.
        shortened = match if match.node.name == self.anchor else None
        while shortened is not None:
            default = self._as_expected(shortened, support_query)
            if default is not None:
                candidate = variant_named(self.variant, default, support_query)
                return _REFUSED if candidate is None else Decision(candidate, "it is being measured")
            shortened = shortened.shortened()
        return _REFUSED

    def _as_expected(self, match: Match, support_query: KernelSupportQuery) -> DefaultVariant | None:
        """The match in its program's default variant, if that is the same call here."""
        for name, choice, _ in cost_model_of(match).preferred_variants(match, None):
            if name == self.expected_default.variant:
                candidate = support_query(choice)
                if (
                    not isinstance(candidate, Refusal)
                    and candidate.attributes == self.expected_default.candidate.attributes
                ):
                    return DefaultVariant(candidate, name)
        return None


def dispatch_single_call(
    pipeline: Pipeline, extracted: ExtractedModule, default: DefaultVariant, variant: str
) -> Module | None:
    """The extracted module with its region dispatched; None where it does not match as in its program."""
    planner = replace(pipeline.planner, policy="always", decide=SingleCall(extracted.anchor, default, variant))
    passes = FROZEN if extracted.frozen else REGION  # a module with frozen inputs is split before it runs
    return Pipeline(planner, passes=passes, frozen=extracted.frozen).rewrite(extracted.module.copy())[0]
