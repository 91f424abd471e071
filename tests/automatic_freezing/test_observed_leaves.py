"""Which leaves count as static, and when."""

from __future__ import annotations

from hlo_dispatch.automatic_freezing.observed_leaves import ObservedLeaves


class Leaf:
    """Stands for an array of some bytes."""

    def __init__(self, nbytes: int = 100, freezable: bool = True) -> None:
        self.nbytes, self.freezable = nbytes, freezable


def observation(repeats: int = 2) -> ObservedLeaves:
    return ObservedLeaves(lambda leaf: leaf.freezable, smallest=100, repeats=repeats)


def test_leaves_are_static_once_they_are_repeated_twice() -> None:
    observed, w = observation(), Leaf()
    assert observed.observe([w, Leaf(1)]) == ()
    assert observed.observe([w, Leaf(1)]) == ()
    assert observed.observe([w, Leaf(1)]) == (0,)


def test_what_changes_in_the_last_call_is_dynamic() -> None:
    observed, w, x = observation(), Leaf(), Leaf()
    observed.observe([w, x])
    observed.observe([w, x])
    other = Leaf()
    assert observed.observe([w, other]) == (0,)
    assert observed.observe([w, other]) == (0,), "once dynamic, always dynamic"


def test_what_may_not_be_frozen_is_dynamic() -> None:
    observed, w, n = observation(repeats=0), Leaf(), Leaf(freezable=False)
    assert observed.observe([w, n]) == (0,)
    w.freezable = False  # deleted, or donated
    assert observed.observe([w, n]) == ()
    assert observed.is_exhausted


def test_too_few_bytes_are_too_few() -> None:
    observed, w = observation(repeats=0), Leaf(99)
    assert observed.observe([w]) == ()
    assert observed.is_exhausted


def test_training_is_exhausted_after_two_calls() -> None:
    observed = observation()
    observed.observe([Leaf(), Leaf()])
    observed.observe([Leaf(), Leaf()])
    assert observed.is_exhausted


def test_new_weights_are_static_again_where_they_stay() -> None:
    observed, w = observation(), Leaf()
    for _ in range(3):
        observed.observe([w, Leaf(1)])
    new = Leaf()
    assert observed.replaced([new, Leaf(1)]) == ()
    assert observed.observe([new, Leaf(1)]) == ()
    assert observed.observe([new, Leaf(1)]) == (0,)


def test_new_weights_in_each_call_are_dynamic() -> None:
    observed, w = observation(), Leaf()
    for _ in range(3):
        observed.observe([w])
    observed.replaced([Leaf()])
    observed.observe([Leaf()])
    assert observed.is_exhausted


def test_a_small_part_that_changes_later_is_no_weight() -> None:
    observed, w, x = observation(), Leaf(1000), Leaf(10)
    for _ in range(3):
        observed.observe([w, x])
    assert observed.replaced([w, Leaf(10)]) == (0,), "the weights have been there all the time"


def test_a_new_object_at_the_address_of_a_dead_one_is_another() -> None:
    observed = observation()
    for _ in range(8):
        leaf = Leaf()
        assert observed.observe([leaf]) == ()
        del leaf
