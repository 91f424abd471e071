"""A program of kernel calls only still runs on a thread of XLA's, asynchronously."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.passes.async_padding import CHEAP_OPERATIONS
from side_by_side import assert_close


def compiled(function, *arguments, policy: str):
    with hlo_dispatch.enabled(policy=policy):
        return jax.jit(lambda *inputs: function(*inputs)).lower(*arguments).compile()


def operations(executable) -> float:
    """What XLA's client counts when it decides on which thread a program runs."""
    return executable.cost_analysis()["flops"]


def convolution(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize("depth", [1, 3])
def test_a_long_program_of_calls_only(depth: int) -> None:
    random = np.random.default_rng(depth)
    x = random.standard_normal((2, 40, 40, 32)).astype(np.float32)
    w = random.standard_normal((3, 3, 32, 32)).astype(np.float32) / 17

    def program(x, w):
        for _ in range(depth):
            x = convolution(x, w)
        return x

    executable = compiled(program, x, w, policy="always")
    text = executable.as_text()
    assert text.count('custom_call_target="hlo_dispatch.') == 1  # several are one sequence
    assert operations(executable) >= CHEAP_OPERATIONS
    assert_close(np.asarray(executable(x, w)), np.asarray(jax.jit(program)(x, w)))


def test_a_short_one_and_one_with_loops_are_left_as_they_are() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 10, 10, 8)).astype(np.float32)
    w = random.standard_normal((3, 3, 8, 8)).astype(np.float32)
    short = compiled(convolution, x, w, policy="always")
    assert operations(short) < CHEAP_OPERATIONS
    assert "async_padding" not in short.as_text()
    x = random.standard_normal((2, 40, 40, 32)).astype(np.float32)
    w = random.standard_normal((3, 3, 32, 32)).astype(np.float32)
    looped = compiled(lambda x, w: convolution(x + 1, w), x, w, policy="always")
    assert operations(looped) >= CHEAP_OPERATIONS
    assert "async_padding" not in looped.as_text()


def test_calls_inside_of_a_loop_only() -> None:
    """The entry has no call of ours to stand in front of."""
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 40, 40, 32)).astype(np.float32)
    w = random.standard_normal((3, 3, 32, 32)).astype(np.float32) / 17

    def program(x, w):
        return jax.lax.fori_loop(0, 3, lambda _, value: convolution(value, w), x)

    got = compiled(program, x, w, policy="always")(x, w)
    assert_close(np.asarray(got), np.asarray(jax.jit(program)(x, w)))
