"""One kernel call and nothing else: an excerpt with its one region dispatched in a given form."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo_dispatch.autotune.extract.extracted import Excerpt
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.routines.routine import RoutineMatch
from hlo_dispatch.match.structural.structural_match import StructuralMatch
from hlo_dispatch.policy.candidate import Default, default_of, form_named
from hlo_dispatch.policy.decide import Decision, Recall
from hlo_dispatch.rewriting.plan import AnyMatch
from hlo_dispatch.rewriting.rewriter import Rewriter


@dataclass(frozen=True)
class OneCall(Rewriter):
    """The pass, with everything decided: one anchor's default has to be `wanted`, and is dispatched as `form`."""

    anchor: str = ""
    wanted: Default | None = None
    form: str = ""

    def _decide(self, match: AnyMatch, recall: Recall) -> Decision:
        stays = Decision(None, "", Refusal("policy", "another region is being measured"))
        if match.anchor.node.name != self.anchor or self.wanted is None:
            return stays
        if isinstance(match, RoutineMatch):
            return self._routine(match, self.wanted, stays)
        target = self.wanted.candidate.attributes
        shorter: Match | StructuralMatch | None = match
        # Here nobody else has taken a part of the epilogue, so the match may be longer than in its module.
        while shorter is not None:
            default = default_of(shorter, self._ask)
            if isinstance(default, Refusal):
                return stays
            if default.candidate.attributes == target:
                candidate = form_named(self.form, shorter, default, self._ask)
                return stays if candidate is None else Decision(candidate, "it is being measured")
            shorter = default.candidate.match.shortened() if default.form == "whole" else shorter.shortened()
        return stays

    def _routine(self, match: RoutineMatch, wanted: Default, stays: Decision) -> Decision:
        default, candidate = self._ask(match.by(wanted.form)), self._ask(match.by(self.form))
        if isinstance(default, Refusal) or isinstance(candidate, Refusal):
            return stays
        is_same = default.attributes == wanted.candidate.attributes
        return Decision(candidate, "it is being measured") if is_same else stays


def one_call(rewriter: Rewriter, excerpt: Excerpt, default: Default, form: str) -> bytes | None:
    """The excerpt's module with its region dispatched; None where it matches otherwise than in its program."""
    names = ("table", "policy", "machine", "finder", "patterns", "routines")
    fields = {name: getattr(rewriter, name) for name in names}
    forced = OneCall(**fields, anchor=excerpt.anchor, wanted=default, form=form)
    return replace(forced, policy="always").run(excerpt.module)[0]
