"""Selection for one match: policies, other machines, and kernels that refuse the last epilogue ops."""

from __future__ import annotations

import pytest

import hlo_dispatch
from hlo_dispatch.errors import PolicyError, Refusal
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.match.match import Match
from hlo_dispatch.process.machine import Machine, this_machine
from hlo_dispatch.selection.decide import POLICIES, Candidate, Decision, check_policy, decide
from matching import only_match

MODERN = Machine("modern", frozenset(("avx2", "avx512f", "avx512_bf16")), 8)


def match_of() -> Match:
    """A product large enough for every policy, a bias, a tanh and a residual."""
    return only_match("""
ENTRY main { x = f32[256,256]{1,0} parameter(0)
  w = f32[256,256]{1,0} parameter(1)
  b = f32[256]{0} parameter(2)
  r = f32[256,256]{1,0} parameter(3)
  bias = f32[256,256]{1,0} broadcast(b), dimensions={1}
  dot = f32[256,256]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[256,256]{1,0} add(dot, bias)
  tanh = f32[256,256]{1,0} tanh(sum)
  ROOT last = f32[256,256]{1,0} subtract(tanh, r) }
""")


def algorithms(match: Match) -> list[str]:
    return [post_op.algorithm for step in match.fused.steps for post_op in step.post_ops]


class Kernel:
    """What a vendor library might say: it takes at most so many post-ops."""

    def __init__(self, most: int, code: str = "kernel-unsupported") -> None:
        self.most, self.code = most, code
        self.asked: list[list[str]] = []

    def __call__(self, match: Match) -> Candidate | Refusal:
        self.asked.append(algorithms(match))
        if len(algorithms(match)) > self.most:
            return Refusal(self.code, f"{len(algorithms(match))} post-ops are too many")
        return Candidate(match, Attributes(match.attributes()), "brgemm:avx512_core", 0)


def chosen(decision: Decision) -> Match:
    assert decision.candidate is not None
    assert decision.candidate is not None
    assert isinstance(decision.candidate.match, Match)
    return decision.candidate.match


# --- policies ----------------------------------------------------------------------------------------------


def test_never_does_not_even_ask() -> None:
    kernel = Kernel(9)
    decision = decide(match_of(), MODERN, "never", kernel)
    assert decision.candidate is None
    assert decision.refusal == Refusal("policy", 'the policy "never" leaves everything to XLA', "dot")
    assert decision.reason == decision.refusal.sentence
    assert kernel.asked == []


def test_always_takes_what_a_kernel_can() -> None:
    decision = decide(match_of(), MODERN, "always", Kernel(9))
    assert algorithms(chosen(decision)) == ["add", "tanh", "sub"]
    assert decision.refusal is None
    assert decision.reason == 'the policy "always" takes every kernel that can compute the region'


def test_the_cost_model_says_why() -> None:
    decision = decide(match_of(), MODERN, "heuristic", Kernel(9))
    assert algorithms(chosen(decision)) == ["add", "tanh", "sub"]
    assert decision.reason == "tanh costs no pass of its own"


@pytest.mark.parametrize("policy", POLICIES)
def test_valid_policies(policy: str) -> None:
    assert check_policy(policy) == policy


def test_an_unknown_policy_is_told_which_there_are() -> None:
    with pytest.raises(PolicyError) as caught:
        check_policy("sometimes")
    assert str(caught.value) == f"unknown policy 'sometimes'; valid policies are: {', '.join(POLICIES)}"


def test_the_public_face_refuses_it_too() -> None:
    with pytest.raises(PolicyError, match=r"unknown policy 'sometimes'; valid policies are: "):
        hlo_dispatch.rewrite("HloModule m\nENTRY main { ROOT x = f32[] parameter(0) }", policy="sometimes")


# --- shorter forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "taken"), [(3, 3), (2, 2), (1, 1), (0, 0)])
def test_a_kernel_is_asked_again_with_less(most: int, taken: int) -> None:
    kernel = Kernel(most)
    decision = decide(match_of(), MODERN, "always", kernel)
    assert algorithms(chosen(decision)) == ["add", "tanh", "sub"][:taken]
    assert kernel.asked == [["add", "tanh", "sub"][:count] for count in range(3, taken - 1, -1)]
    cut = "; the rest of its epilogue stays with XLA: kernel-unsupported: 3 post-ops are too many"
    assert decision.reason.partition(";")[0] == 'the policy "always" takes every kernel that can compute the region'
    assert decision.reason.endswith(cut) == (taken < 3)


def test_what_is_said_of_the_whole_is_what_is_reported() -> None:
    """The first refusal concerns the region a person sees."""
    kernel = Kernel(-1)
    decision = decide(match_of(), MODERN, "always", kernel)
    assert decision.candidate is None
    assert decision.refusal == Refusal("kernel-unsupported", "3 post-ops are too many", "dot")
    assert len(kernel.asked) == 4


def test_a_missing_library_is_asked_once() -> None:
    kernel = Kernel(-1, "library-missing")
    decision = decide(match_of(), MODERN, "heuristic", kernel)
    assert decision.refusal is not None
    assert decision.refusal.code == "library-missing"
    assert len(kernel.asked) == 1


def test_the_cost_model_judges_what_the_kernel_takes() -> None:
    """Without its tanh the product is not worth a call."""
    decision = decide(match_of(), MODERN, "heuristic", Kernel(1))
    assert decision.candidate is None
    assert decision.refusal is not None
    assert (decision.refusal.code, decision.refusal.instruction) == ("policy", "dot")


# --- machines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "has"),
    [
        (["avx2", "avx512f"], False),
        (["avx512_bf16"], True),
        (["amx_bf16"], True),
        (["avx_ne_convert"], True),
        ([], False),
    ],
)
def test_bf16_arithmetic(features: list[str], has: bool) -> None:
    assert Machine("pretended", frozenset(features), 1).has_bf16_arithmetic == has


def test_this_machine() -> None:
    machine = this_machine()
    assert machine.threads >= 1
    assert machine is this_machine()
