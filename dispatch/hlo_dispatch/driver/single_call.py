"""One kernel call and nothing else: an extracted module with its one region dispatched in a given variant."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.pipeline import Rewriter
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.candidate import Ask, Default, variant_named
from hlo_dispatch.selection.decide import Decision, Recall
from hlo_dispatch.selection.family_cost_models import rule_of

_STAYS = Decision(None, "", Refusal("policy", "another region is being measured"))


@dataclass(frozen=True)
class OneCall:
    """Decides everything: one match's default has to be `wanted`, and is dispatched as `variant`; the rest stays."""

    anchor: str
    """Name of the match's instruction."""
    wanted: Default
    variant: str

    def __call__(self, match: CallableMatch, machine: Machine, policy: str, ask: Ask, recall: Recall) -> Decision:
        """What a planner's `decide` says."""
        # Here nobody else has taken a part of the epilogue, so the match may be longer than in its module.
        shorter = match if match.node.name == self.anchor else None
        while shorter is not None:
            default = self._as_wanted(shorter, ask)
            if default is not None:
                candidate = variant_named(self.variant, default, ask)
                return _STAYS if candidate is None else Decision(candidate, "it is being measured")
            shorter = shorter.shortened()
        return _STAYS

    def _as_wanted(self, match: CallableMatch, ask: Ask) -> Default | None:
        """The match in the variant that is the default in its program, if it is the same call here."""
        for name, choice, _ in rule_of(match).first_choices(match, None):
            if name == self.wanted.variant:
                candidate = ask(choice)
                if not isinstance(candidate, Refusal) and candidate.attributes == self.wanted.candidate.attributes:
                    return Default(candidate, name)
        return None


def one_call(rewriter: Rewriter, extracted: ExtractedModule, default: Default, variant: str) -> bytes | None:
    """The extracted module with its region dispatched; None where it matches otherwise than in its program."""
    planner = replace(rewriter.planner, policy="always", decide=OneCall(extracted.anchor, default, variant))
    return Rewriter(planner, frozen=extracted.frozen, advises=False).run(extracted.module)[0]
