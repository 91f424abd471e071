"""The example of GGUF's weights, with a file that the gguf package writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from pages import ROOT

gguf = pytest.importorskip("gguf", reason="writes the file that the example reads")

KERNEL = "own.narrow_product"
RANDOM = np.random.default_rng(5)
TYPES = ("Q8_0", "Q4_0")


@pytest.fixture(scope="module")
def example() -> Any:
    path = ROOT / "docs" / "examples" / "gguf_weights.py"
    spec = importlib.util.spec_from_file_location("gguf_weights", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The file, and its weights as the package dequantizes them."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    exact: dict[str, Any] = {}
    for kind in TYPES:
        of_type = gguf.GGMLQuantizationType[kind]
        for name, shape in (("up", (96, 64)), ("down", (64, 96)), ("one", (1, 32)), ("table", (50, 64))):
            blocks = gguf.quants.quantize(RANDOM.standard_normal(shape).astype(np.float32), of_type)
            writer.add_tensor(f"{kind}.{name}", blocks, raw_dtype=of_type)
            exact[f"{kind}.{name}"] = gguf.quants.dequantize(blocks, of_type).astype(np.float64)
    writer.add_tensor("norm", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, exact


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", TYPES)
def test_products(example: Any, written: tuple[Path, dict[str, Any]], kind: str, rows: int) -> None:
    """As arguments of a jitted function, and frozen."""
    path, exact = written
    weights = example.read(path)
    assert weights["norm"].shape == (64,)
    up, down = (weights[f"{kind}.{name}"] for name in ("up", "down"))
    x = jnp.asarray(RANDOM.standard_normal((rows, 64)), "float32")

    def network(up: Any, down: Any, x: Any) -> Any:
        return example.linear(jax.nn.relu(example.linear(x, up)), down)

    hidden = np.maximum(np.asarray(x, "float64") @ exact[f"{kind}.up"].T, 0)
    wanted = hidden @ exact[f"{kind}.down"].T
    with hlo_dispatch.enabled(policy="always"):
        report = hlo_dispatch.explain(network, up, down, x)
        frozen = hlo_dispatch.freeze(network, up, down)
        results = (jax.jit(network)(up, down, x), frozen(x))
    assert [region.kernel for region in report.regions if region.kernel] == [KERNEL] * 2
    for got in results:
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    dispatched = frozen.report.programs[0].dispatched
    assert dispatched is not None
    assert [region.kernel for region in dispatched.regions if region.kernel] == [KERNEL] * 2
    assert frozen.nbytes <= sum(leaf.nbytes for leaf in jax.tree.leaves((up, down))) + 64


@pytest.mark.parametrize("kind", TYPES)
def test_one_output_and_lookups(example: Any, written: tuple[Path, dict[str, Any]], kind: str) -> None:
    path, exact = written
    weights = example.read(path)
    x, tokens = jnp.ones((2, 32)), jnp.asarray([[3, 49], [0, 3]])
    with hlo_dispatch.enabled(policy="always"):
        one = jax.jit(example.linear)(x, weights[f"{kind}.one"])
        rows = hlo_dispatch.freeze(lambda table, tokens: example.embedding(tokens, table), weights[f"{kind}.table"])(
            tokens
        )
    np.testing.assert_allclose(one, np.ones((2, 32)) @ exact[f"{kind}.one"].T, rtol=1e-5)
    np.testing.assert_allclose(rows, exact[f"{kind}.table"][np.asarray(tokens)], rtol=1e-6)


def test_other_types_are_refused(example: Any, tmp_path: Path) -> None:
    of_type = gguf.GGMLQuantizationType.Q5_0
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "llama")
    writer.add_tensor("w", gguf.quants.quantize(np.ones((4, 32), np.float32), of_type), raw_dtype=of_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="w is quantized as Q5_0"):
        example.read(tmp_path / "other.gguf")
