"""Compatibility with the release before: its imports, tables, measurement stores, rewritten modules and JSON keys.

`tests/previous_release/` holds what that release (version 0.1.0 of November 2026) wrote:

- `module.pb`: an optimized module of jax 0.10.2, a convolution with relu, a product with bias and gelu, a softmax
  and a Cholesky factorization; `dispatched.pb`: the same under the policy "always"
- `anchors.yaml`, `softmax.yaml`: two of its tables, with names and a priority of their own
- `store.json`: the export of a measurement store after `tune`
- `expected.json`: digests of the module's regions, and the names of what `--json`, reports and saved programs hold
"""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.autotune.run.executable import Executable, to_device
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.ir.module import Module
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.measurements import KnownMeasurements
from hlo_dispatch.vendor.registration import register_kernels

FOLDER = Path(__file__).parents[1] / "previous_release"
MODULE, DISPATCHED = (FOLDER / name for name in ("module.pb", "dispatched.pb"))
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())
STORE = (FOLDER / "store.json").read_text()

IMPORTS = (
    "enabled explain freeze install installed load load_tables optimize register_kernels reports rewrite statistics "
    "tune uninstall write_page kernels kernels.library_path vendor.kernels.registrations bench.models.diffusion Report "
    "Region FreezeError FreezeReport Frozen HloDispatchError LibraryError Loaded ModuleError PolicyError Refusal "
    "Rewritten Statistics TableError Unavailable"
).split()


def keys_of(value: Any, above: str = "") -> Iterator[str]:
    """Dotted paths of a JSON document's keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{above}.{key}"
            yield from keys_of(inner, f"{above}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, f"{above}[]")


def inputs() -> list[Any]:
    rng = np.random.default_rng(3)
    shapes = Module.from_bytes(MODULE.read_bytes()).entry.program_shape.parameters
    return [rng.standard_normal(tuple(shape.dimensions), "float32") / 4 for shape in shapes]


@pytest.mark.parametrize("name", IMPORTS)
def test_what_pages_name_is_importable(name: str) -> None:
    found: Any = hlo_dispatch
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(f"{found.__name__}.{part}")


def test_a_module_it_rewrote_runs() -> None:
    """Custom-call targets and their attributes mean what they meant."""
    register_kernels()
    jnp.linalg.cholesky(jnp.eye(2))  # JAX finds LAPACK's functions when it first lowers a call of one
    arguments = to_device(inputs())
    wanted = Executable(Module.from_bytes(MODULE.read_bytes()))(arguments)
    for got, exact in zip(Executable(Module.from_bytes(DISPATCHED.read_bytes()))(arguments), wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


def test_its_measurements_are_found() -> None:
    """Equal regions have the digests that they had: a store is not measured again.

    But for what another kernel computes now: the product of one row, with its gelu, was oneDNN's.
    """
    asked: set[str] = set()

    class Recorder(KnownMeasurements):
        def get(self, region: str) -> Any:
            asked.add(region)
            return super().get(region)

    # On the processor that wrote the store: which kernel is a region's first choice depends on it.
    ((_, context),) = json.loads(STORE)["contexts"].items()
    machine = Machine(context["cpu"], frozenset(context["features"]), context["threads"])
    written_there = Pipeline.make(hlo_dispatch.load_tables(), "stored", machine)
    written_there.with_knowledge(Recorder()).run(MODULE.read_bytes())
    assert set(EXPECTED["regions"]) <= asked


def test_its_store_is_read_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.load(STORE)
    assert json.loads(store.export()) == json.loads(STORE)


def test_its_tables_are_read() -> None:
    table = hlo_dispatch.load_tables([FOLDER / "anchors.yaml", FOLDER / "softmax.yaml"])
    assert {"former_dot", "dot"} <= {*table.anchors}
    assert "former_softmax" in {pattern.name for pattern in table.patterns}
    # Integers were op kinds of their own, whose element types were those of the results.
    for name, op_kind in (("former_integer_convolution", "forward"), ("former_integer_product", "product")):
        former, shipped = table.anchors[name], table.anchors[name.removeprefix("former_")]
        assert former.op_kind == shipped.op_kind == op_kind
        assert set(former.dtypes) == set(shipped.dtypes) == {"s8", "u8"}
        assert former.numerics.keys() == shipped.numerics.keys()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("explain", ["explain", str(MODULE), "--json"]),
        ("tune", ["tune", str(MODULE), "--validate-only", "--json"]),
    ],
)
def test_json_has_its_keys(run: Any, tmp_path: Path, name: str, arguments: list[str]) -> None:
    done = run(*arguments, env={"HLO_DISPATCH_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    written = set(keys_of(json.loads(done.stdout)))
    # Variants, stages and attributes are what this processor's libraries have; they are values, written as keys.
    fixed = {
        k
        for k in EXPECTED["keys"][name]
        if not any(f"{part}." in k for part in ("attributes", "differences", "stages"))
    }
    assert fixed <= written


def test_reports_have_their_fields(tmp_path: Path) -> None:
    report = hlo_dispatch.rewrite(MODULE.read_bytes(), policy="always").report
    assert set(EXPECTED["keys"]["report"]) <= set(dir(report))
    assert set(EXPECTED["keys"]["region"]) <= set(dir(report.regions[0]))
    assert set(EXPECTED["keys"]["statistics"]) <= set(dir(hlo_dispatch.statistics()))
    weights = {"w": jnp.ones((16, 8))}
    frozen = hlo_dispatch.freeze(lambda p, x: jnp.tanh(x @ p["w"]), weights)
    frozen(jnp.ones((4, 16)))
    assert set(EXPECTED["keys"]["freeze report"]) <= set(dir(frozen.report))
    frozen.save(tmp_path / "frozen")
    with zipfile.ZipFile(tmp_path / "frozen") as archive:
        keys = {key for key in EXPECTED["keys"]["frozen"] if not key.startswith(".needs.libraries.")}
        assert keys <= set(keys_of(json.loads(archive.read("programs.json"))))
