"""Call groups: successive kernel calls as one call, with unchanged results."""

from __future__ import annotations

import io
import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import conv, random
from rich.console import Console

import hlo_dispatch
from hlo_dispatch.bench.profile import profile_module
from hlo_dispatch.cli.explain_page.drawing import drawing
from hlo_dispatch.cli.explain_view import print_explanation
from hlo_dispatch.process.environment_switches import SEQUENCES_VARIABLE
from side_by_side import Both, assert_agree, run_both

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

DTYPES = ("float32", "bfloat16")


def joined(program, *arguments, tolerance: float | None = None, **options) -> Both:
    both = run_both(program, *arguments, **options)
    assert_agree(both, tolerance)
    return both


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 5, 16])
def test_a_chain_is_one_call(dtype: str, size: int) -> None:
    def program(x, v, w):
        for _ in range(3):
            x = jax.nn.relu(conv(x, v))
            x = jax.nn.relu(conv(x, w))
        return x

    weights = random(3, 3, 7, 19, dtype=dtype), random(1, 1, 19, 7, dtype=dtype)
    both = joined(program, random(2, size, size, 7, dtype=dtype), *weights)
    assert both.sequences == [6]


def test_a_long_chain_is_one_call() -> None:
    """More than are under way at once; each is wrong if it begins before the one in front of it has ended."""

    def program(x, w, b):
        for _ in range(40):
            x = jnp.tanh(x @ w + b)
        return x

    both = joined(program, random(33, 65), random(65, 65), 8 * random(65))
    assert both.sequences == [40]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_branch_is_a_member_and_a_result_in_the_middle_is_returned(dtype: str) -> None:
    def program(x, v, w):
        y = jax.nn.relu(conv(x, v))
        shortcut = conv(y, w)
        z = jax.nn.relu(conv(jax.nn.relu(conv(y, v)), w) + shortcut)
        return z, y

    weights = random(3, 3, 8, 8, dtype=dtype), random(1, 1, 8, 8, seed=1, dtype=dtype)
    both = joined(program, random(1, 9, 7, 8, dtype=dtype), *weights)
    assert both.sequences == [4]


def test_an_op_in_between_ends_a_call_group() -> None:
    def program(x, w):
        x = conv(conv(x, w), w)
        x = jnp.cumsum(x, axis=1)
        return conv(conv(x, w), w)

    both = joined(program, random(1, 6, 6, 4), random(3, 3, 4, 4))
    assert both.sequences == [2, 2]


@pytest.mark.parametrize("groups", [1, 12])
def test_in_a_loop_whose_state_is_written_over(groups: int) -> None:
    def program(x, w, n):
        def turn(_, state):
            x, kept = state
            y = jax.nn.tanh(conv(jax.nn.relu(conv(x, w, groups=groups)), w, groups=groups))
            return y, kept.at[0].set(x[0] + kept[1])

        return jax.lax.fori_loop(0, n, turn, (x, jnp.zeros_like(x)))

    both = joined(program, random(2, 5, 5, 12), random(3, 3, 12 // groups, 12), 5, tolerance=1e-4)
    assert both.sequences == [2]


def test_in_a_branch_whose_operand_is_returned() -> None:
    def program(flag, x, w):
        return jax.lax.cond(flag, lambda x: jnp.tanh(jnp.tanh(x @ w) @ w), lambda x: x, x)

    for flag in (True, False):
        joined(program, flag, random(3, 17), random(17, 17))


def test_donated_operands() -> None:
    def program(x, w):
        y = jax.nn.relu(jax.nn.relu(x @ w) @ w)
        return y @ w + x

    joined(program, random(33, 33), random(33, 33, seed=1), donate_argnums=(0,))


def test_gradients() -> None:
    def loss(weights, x):
        for w in weights:
            x = jax.nn.relu(conv(x, w))
        return (x**2).sum()

    joined(jax.grad(loss), [random(3, 3, 6, 6, seed=n) for n in range(3)], random(2, 7, 7, 6))


def test_pooling_and_softmax_and_products_are_one_call_group() -> None:
    def program(x, v, w):
        x = jax.nn.relu(conv(x, v))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x.reshape(2, -1) @ w

    both = joined(program, random(2, 8, 8, 3), random(3, 3, 3, 5), random(80, 10))
    assert both.sequences == [3]


def attention(x, weights, heads: int):
    """Of one layer, with the last two keys masked."""
    queries, keys, values = ((x @ w).reshape(*x.shape[:2], heads, -1) for w in weights)
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / 3
    scores = jnp.where(jnp.arange(x.shape[1]) < x.shape[1] - 2, scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), values).reshape(x.shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_between_products_is_a_member(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the library's threads it computes what it does on XLA's, to the bit."""

    def program(x, v, w, u):
        for _ in range(2):
            x = x + attention(x, (v, w, u), 3) @ w
        return x

    matrices = [random(39, 39, seed=n, dtype=dtype) / 6 for n in range(3)]
    x = random(2, 17, 39, dtype=dtype)
    both = joined(program, x, *matrices, as_users_have_it=True)
    assert both.sequences == [10]
    monkeypatch.setenv(SEQUENCES_VARIABLE, "0")
    apart = run_both(program, x, *matrices, as_users_have_it=True)
    np.testing.assert_array_equal(*(np.asarray(run.dispatched[0], "float32") for run in (both, apart)))


def test_attentions_alone_are_not_grouped() -> None:
    """Nothing of the library's stands between them."""

    def program(q, k, v):
        for _ in range(3):
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
            q = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
        return q

    both = joined(program, *(random(2, 9, 3, 8, seed=n) for n in range(3)))
    assert not both.sequences


def test_frozen() -> None:
    def program(weights, x):
        for v, w in weights:
            x = jax.nn.relu(conv(jax.nn.relu(conv(x, v)), w) + x)
        return x

    weights = [(random(3, 3, 8, 24, seed=n), random(1, 1, 24, 8, seed=n)) for n in range(3)]
    x = random(1, 11, 11, 8)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(program, weights)
        found = fast(x)
    wanted = jax.jit(program)(weights, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_as_the_separate_calls(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x, v, w):
        for _ in range(4):
            x = jax.nn.relu(conv(jax.nn.gelu(conv(x, v)), w) + x)
        return x

    arguments = random(2, 13, 11, 8, dtype=dtype), random(3, 3, 8, 24, dtype=dtype), random(1, 1, 24, 8, dtype=dtype)
    together = run_both(program, *arguments)
    monkeypatch.setenv(SEQUENCES_VARIABLE, "0")
    apart = run_both(program, *arguments)
    assert together.sequences
    assert not apart.sequences
    np.testing.assert_array_equal(together.dispatched[0], apart.dispatched[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("frozen", [False, True])
def test_residuals_are_added_to_where_they_lie(dtype: str, frozen: bool) -> None:
    """Behind and ahead of an activation, of convolutions and of products; but for one that somebody else reads."""

    def program(weights, x):
        v, w, p, q = weights
        x = conv(x, v)
        for _ in range(2):
            x = jax.nn.relu(conv(jax.nn.gelu(conv(x, w)), w) + x)
        rows = x.reshape(-1, x.shape[-1])
        for _ in range(2):
            rows = rows + jnp.tanh(rows @ p) @ q
        kept = rows
        return (rows + jnp.tanh(rows @ p) @ q) @ p, kept

    shapes = (3, 3, 8, 24), (1, 1, 24, 24), (24, 40), (40, 24)
    weights = [random(*shape, dtype=dtype) / 4 for shape in shapes]
    x = random(2, 13, 11, 8, dtype=dtype)
    wanted = [np.asarray(part, "float64") for part in jax.jit(program)(weights, x)]
    with hlo_dispatch.enabled(policy="always"):
        if frozen:
            run = hlo_dispatch.freeze(program, weights)
            got = run(x)
        else:
            compiled = jax.jit(program).lower(weights, x).compile()
            got = compiled(weights, x)
            if dtype == "float32":
                assert compiled.as_text().count('kind = "sum"') >= 2
    for expected, part in zip(wanted, got, strict=True):
        error = np.abs(np.asarray(part, "float64") - expected).max() / np.abs(expected).max()
        assert error < (2e-5 if dtype == "float32" else 4e-2)


def test_many_threads_run_one_executable() -> None:
    @jax.jit
    def program(x, w):
        for _ in range(6):
            x = jax.nn.relu(x @ w)
        return x

    w = random(40, 40, seed=3)
    inputs = [random(9, 40, seed=number) for number in range(16)]
    wanted = [np.asarray(program(x, w)) for x in inputs]
    jax.clear_caches()
    failures: list[str] = []
    with hlo_dispatch.enabled(policy="always"):
        compiled = program.lower(inputs[0], w).compile()
        assert "onednn.sequence" in compiled.as_text()

        def work(number: int) -> None:
            for _ in range(20):
                found = np.asarray(compiled(inputs[number], w))
                if not np.allclose(found, wanted[number], rtol=1e-4, atol=1e-5):
                    failures.append(f"thread {number}")

        threads = [threading.Thread(target=partial(work, number)) for number in range(len(inputs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEQUENCES_VARIABLE, "0")
    both = joined(lambda x, w: jax.nn.relu(x @ w) @ w, random(4, 8), random(8, 8))
    assert (both.sequences, both.calls) == ([], 2)


def test_a_wrong_switch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEQUENCES_VARIABLE, "maybe")
    with pytest.raises(hlo_dispatch.PolicyError, match="HLO_DISPATCH_SEQUENCES is 'maybe'; set it to 0"):
        hlo_dispatch.install()


def test_nan_and_infinities_pass_through() -> None:
    x = random(4, 8)
    x[1, 2], x[2, 3], x[3, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        joined(lambda x, w: jnp.tanh(x @ w) @ w, x, random(8, 8))


def test_the_report_names_the_call_group() -> None:
    both = joined(lambda x, w: jax.nn.relu(x @ w) @ w, random(4, 8), random(8, 8))
    assert {region.call for region in both.report.dispatched} == {"sequence"}


def test_the_report_has_members_and_offsets() -> None:
    both = joined(lambda x, w: jax.nn.relu(jnp.tanh(x @ w) @ w) @ w, random(4, 8), random(8, 8))
    (sequence,) = both.report.sequences
    assert (sequence.name, sequence.calls, sequence.inner) == ("sequence", 3, 2)
    assert sequence.bytes >= 2 * 4 * 8 * 4
    assert both.report.to_dict()["sequences"][0]["calls"] == 3


def test_explaining_shows_the_members() -> None:
    both = joined(lambda x, w: jax.nn.relu(jax.nn.relu(x @ w) @ w) @ w, random(4, 8), random(8, 8))
    shown = Console(width=200, file=io.StringIO())
    print_explanation(shown, both.report)
    text = shown.file.getvalue()
    assert "sequences (1)" in text
    assert "3 calls, waited for once; 2 intermediate values and scratch" in text
    assert "2 x  relu(x @ w)" in text
    assert "3 of 3 regions dispatched in 1 call;" in text


def test_profiling_times_each_member() -> None:
    def program(x, w):
        return jax.nn.relu(x @ w) @ w

    arguments = random(64, 128), random(128, 128)
    text = jax.jit(program).lower(*arguments).compile().as_text()
    profile = profile_module(text, policy="always", runs=4, seconds=0.1)
    assert [region.count for region in profile.regions] == [1, 1]
    assert all(region.dispatched for region in profile.regions)
    assert not [left for left in profile.left if "sequence" in left.opcode]


def test_the_page_has_every_member_at_its_call_group() -> None:
    with hlo_dispatch.enabled(policy="always"):
        report = hlo_dispatch.explain(lambda x, w: jax.nn.relu(x @ w) @ w, random(4, 8), random(8, 8))
    (after,) = drawing(report)["after"]
    assert [node[4] for node in after["nodes"] if node[4]] == [[0, 1]]
