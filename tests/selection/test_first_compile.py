"""The first compile of small transformer blocks measures for as long as it may, and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from environment import clean_environment
from warm import run_python

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import jax
import hlo_dispatch
from encoders import flax_block, plain_block
block = {"flax": flax_block, "plain": plain_block}[sys.argv[2]]
function, arguments = block(*map(int, sys.argv[3].split(",")))
jax.jit(function).lower(*arguments).compile()
done = hlo_dispatch.statistics()
print(done.seconds, done.modules, done.failures)
"""


@pytest.mark.parametrize(("kind", "shape"), [("flax", "2,32,64"), ("plain", "2,32,64"), ("flax", "1,64,64")])
def test_a_block_with_the_norm_behind_the_residual(tmp_path: Path, kind: str, shape: str) -> None:
    """It once took minutes: a region's loop multiplied matrices anew for every element it read.

    The bound is generous, because the machine may be busy with other tests; the deadline itself is tested by a clock
    that nobody disturbs (test_deadline.py).
    """
    environment = clean_environment(HLO_DISPATCH="1", HLO_DISPATCH_CACHE_DIR=str(tmp_path))
    environment.pop("HLO_DISPATCH_MEASURE_SECONDS", None)
    done = run_python(CHILD, Path(__file__).parent, kind, shape, environment=environment, timeout=90)
    assert done.returncode == 0, done.stderr
    seconds, modules, failures = map(float, done.stdout.split())
    assert failures == 0
    # The measuring of one module is bounded, and so is loading the vendors' libraries on a busy machine.
    assert seconds < 6.0 * modules + 10.0
