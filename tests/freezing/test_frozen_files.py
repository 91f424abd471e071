"""Frozen programs saved to a file and loaded, in processes that have none of the model's code."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch import FreezeError
from hlo_dispatch.freezing import machine_compatibility
from hlo_dispatch.ir.module import Module
from warm import run_python

pytestmark = pytest.mark.usefixtures("dispatching")


@pytest.fixture
def dispatching() -> Any:
    """Everything that a kernel can compute is given to it, so that there is something packed to save."""
    with hlo_dispatch.enabled(policy="always"):
        yield


def network(p: Any, x: Any) -> Any:
    y = jax.nn.relu(x @ p["in"] + p["b"])
    return {"y": jnp.tanh(y @ p["out"]), "sum": (y.sum(), [y.astype(jnp.bfloat16)])}


def weights() -> dict[str, Any]:
    random = np.random.default_rng(3)

    def made(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) / 8

    return {"in": made(33, 129), "b": made(129), "out": made(129, 17)}


def numbers(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, 33), dtype=np.float32)


def check_equal(got: Any, wanted: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
        np.testing.assert_array_equal(one, other)


def test_a_loaded_function_is_the_one_that_was_saved(tmp_path: Path) -> None:
    fast = hlo_dispatch.freeze(network, weights(), keep=True)
    wanted = {rows: fast(numbers(rows)) for rows in (1, 5, 64)}
    fast.save(tmp_path / "network")
    loaded = hlo_dispatch.load(tmp_path / "network")
    for _ in range(2):
        for rows, values in wanted.items():
            check_equal(loaded(numbers(rows)), values)
    assert loaded.__name__ == "network"
    assert loaded.nbytes == fast.nbytes
    held = [(p.signature, p.prepared, p.kept) for p in fast.report.programs]
    assert [(p.signature, p.prepared, p.kept) for p in loaded.report.programs] == held
    assert any(value.is_packed for program in loaded.report.programs for value in program.prepared)


def test_arrays_lie_in_their_pages_as_they_lay(tmp_path: Path) -> None:
    """What oneMKL packs is read where it lies then, and not copied in each call."""
    fast = hlo_dispatch.freeze(network, weights())
    fast(numbers(5))
    fast.save(tmp_path / "network")
    loaded = hlo_dispatch.load(tmp_path / "network")
    ((program,), (saved,)) = fast._programs.values(), loaded._programs.values()
    places = [[array.unsafe_buffer_pointer() % 4096 for array in held.arrays] for held in (program, saved)]
    assert places[0] == places[1]


def test_large_blobs_lie_in_their_large_pages_as_they_lay(tmp_path: Path) -> None:
    """Some processors' packed weights of oneMKL's are bound to those; what is packed is bytes to JAX."""
    blob = np.random.default_rng(1).integers(0, 256, (3 << 20) + 77, np.uint8)
    fast = hlo_dispatch.freeze(lambda blob, i: blob[i], blob)
    found = fast(np.int32(12345))
    fast.save(tmp_path / "blob")
    needed = machine_compatibility.what_it_needs(["oneMKL"])["libraries"]
    rewrite(tmp_path / "blob", lambda index: index["needs"].update(libraries=needed))
    loaded = hlo_dispatch.load(tmp_path / "blob")
    assert loaded(np.int32(12345)) == found == blob[12345]
    ((program,), (saved,)) = fast._programs.values(), loaded._programs.values()
    places = [[array.unsafe_buffer_pointer() % (2 << 20) for array in held.arrays] for held in (program, saved)]
    assert places[0] == places[1]


def test_arguments_of_every_kind(tmp_path: Path) -> None:
    def scaled(w: Any, x: Any, rest: Any, *, factor: Any, shift: Any = None) -> Any:
        return [x @ w * factor + rest[0][0] + rest[1]["n"], None if shift is None else shift + 1]

    w, x = jnp.ones((4, 3)), jnp.arange(8.0).reshape(2, 4)
    calls = [
        ((x, ((1.5,), {"n": 2})), {"factor": 3.0}),
        ((x, ((jnp.float32(1.5),), {"n": True})), {"factor": np.float64(0.5), "shift": 1}),
        ((x.astype(jnp.bfloat16), ((np.ones(3),), {"n": 1j})), {"factor": 2}),
    ]
    fast = hlo_dispatch.freeze(scaled, w)
    wanted = [fast(*args, **kwargs) for args, kwargs in calls]
    fast.save(tmp_path / "scaled")
    loaded = hlo_dispatch.load(tmp_path / "scaled")
    for (args, kwargs), values in zip(calls, wanted, strict=True):
        check_equal(loaded(*args, **kwargs), values)
    with pytest.raises(FreezeError, match="these arguments are of another shape, type or tree"):
        loaded(x, ((1,), {"n": 2}), factor=3.0)


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int8", "uint32", "bool", "complex64", "float8_e4m3fn"])
def test_weights_of_every_type(tmp_path: Path, kind: str) -> None:
    w = (jnp.arange(35).reshape(5, 7) % 2).astype(kind)
    fast = hlo_dispatch.freeze(lambda w, x: (w, x + 1), w)
    wanted = fast(jnp.zeros(3))
    fast.save(tmp_path / kind)
    check_equal(hlo_dispatch.load(tmp_path / kind)(jnp.zeros(3)), wanted)


def test_weights_that_are_held_smaller(tmp_path: Path) -> None:
    fast = hlo_dispatch.freeze(network, weights(), weights="bf16")
    wanted = fast(numbers(5))
    fast.save(tmp_path / "small")
    check_equal(hlo_dispatch.load(tmp_path / "small")(numbers(5)), wanted)


LOAD = """
import sys
class Nothing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("flax", "keras", "torch", "equinox"):
            raise ImportError(name)
sys.meta_path.insert(0, Nothing())
import jax, numpy as np, hlo_dispatch
traced = []
loaded = hlo_dispatch.load(sys.argv[1])
got = loaded(np.load(sys.argv[2]))
np.testing.assert_array_equal(got["y"], np.load(sys.argv[3]))
assert not hlo_dispatch.installed()
assert not {"flax", "keras", "torch", "equinox"} & set(sys.modules)
print("equal")
"""


def test_another_process_without_the_models_code(tmp_path: Path) -> None:
    fast = hlo_dispatch.freeze(network, weights())
    np.save(tmp_path / "x.npy", numbers(5))
    np.save(tmp_path / "y.npy", fast(numbers(5))["y"])
    fast.save(tmp_path / "network")
    files = [tmp_path / name for name in ("network", "x.npy", "y.npy")]
    done = run_python(LOAD, *files, environment=clean_environment())
    assert done.stdout.strip() == "equal", done.stderr


class Point(NamedTuple):
    x: Any
    y: Any


def test_what_only_the_models_code_can_make_is_refused(tmp_path: Path) -> None:
    for function, argument in ((lambda w, x: Point(w, x), jnp.ones(2)), (lambda w, p: w + p.x, Point(1.0, 2.0))):
        fast = hlo_dispatch.freeze(function, jnp.ones(2))
        fast(argument)
        with pytest.raises(FreezeError, match=r"in a Point, which only the model's code can make: .*plain tuples"):
            fast.save(tmp_path / "point")
    fast = hlo_dispatch.freeze(lambda w, key: w + jax.random.normal(key, (2,)), jnp.ones(2))
    with pytest.raises(FreezeError, match="call it once with arguments as they will be"):
        fast.save(tmp_path / "point")
    fast(jax.random.key(0))
    with pytest.raises(FreezeError, match=r"cannot be saved: .* jax\.random key"):
        fast.save(tmp_path / "point")
    assert not list(tmp_path.iterdir()), "nothing is left of what could not be written"


def test_it_cannot_be_traced(tmp_path: Path) -> None:
    fast = hlo_dispatch.freeze(network, weights())
    fast(numbers(5))
    fast.save(tmp_path / "network")
    loaded = hlo_dispatch.load(tmp_path / "network")
    with pytest.raises(FreezeError, match="has no function to trace"):
        jax.jit(loaded)(numbers(5))
    with pytest.raises(FreezeError, match="has no function to trace"), jax.disable_jit():
        loaded(numbers(5))
    with pytest.raises(FreezeError, match=r"saved with programs for \(f32\[5,33\]\), and these arguments are"):
        loaded(numbers(6))
    check_equal(loaded(numbers(5)), fast(numbers(5)))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    fast = hlo_dispatch.freeze(network, weights())
    fast(numbers(5))
    fast.save(tmp_path / "network")
    return tmp_path / "network"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"jaxlib": "0.1"}, r"jaxlib 0\.1, here 0\."),
        ({"threads": 4096}, r"threads 4096, here \d+"),
        ({"kernels": "1, 1"}, r"kernels 1, 1, here 1, "),
        ({"hlo-dispatch": "7"}, r"hlo-dispatch 7, here 0\."),
        ({"processor": ["avx2", "amx_fp99"]}, r"a processor with amx_fp99, which this one has not"),
        ({"processor": []}, r"a processor without .*, which this one has"),
        ({"libraries": {"oneDNN": "2.0 over sycl"}}, r"oneDNN 2\.0 over sycl, here 3\."),
        ({"libraries": {"oneXYZ": "1"}}, r"oneXYZ 1, here none"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_machine_is_told_what_differs(saved: Path, change: dict[str, Any], words: str) -> None:
    def differ(index: dict[str, Any]) -> None:
        index["needs"] |= change

    rewrite(saved, differ)
    with pytest.raises(FreezeError, match=rf"was saved for .*{words}.*: save it on a machine like this one"):
        hlo_dispatch.load(saved)


def rewrite(path: Path, change: Any, drop: str = "", replace: dict[str, bytes] | None = None) -> None:
    """The file with another index, without a member, with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != drop}
    index = json.loads(members["programs.json"])
    change(index)
    members |= {"programs.json": json.dumps(index).encode()} | (replace or {})
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_a_format_of_another_time(saved: Path) -> None:
    rewrite(saved, lambda index: index.update(format=99))
    with pytest.raises(FreezeError, match="has format 99, and here 3 is read"):
        hlo_dispatch.load(saved)


DAMAGES: dict[str, Any] = {
    "no programs": lambda index: index.pop("programs"),
    "none": lambda index: index.update(programs=[]),
    "a shape": lambda index: index["arrays"][0].update(shape=[3]),
    "a negative shape": lambda index: index["arrays"][0].update(shape=[-1, 7]),
    "a type": lambda index: index["arrays"][0].update(dtype="object"),
    "no type": lambda index: index["arrays"][0].update(dtype="zeros"),
    "a place": lambda index: index["arrays"][0].update(place="x"),
    "too few arrays": lambda index: index["programs"][0]["arrays"].pop(),
    "an argument's shape": lambda index: index["programs"][0]["form"]["arguments"][0].__setitem__(1, [5, 34]),
    "a result's type": lambda index: index["programs"][0]["form"]["results"][0].__setitem__(0, "int32"),
    "a container": lambda index: index["programs"][0]["form"].update(returned={"eval": [0]}),
    "leaves": lambda index: index["programs"][0]["form"].update(returned={"tuple": [0]}),
    "a list": lambda index: index["programs"][0].update(form=[]),
    "an array that is not there": lambda index: index["programs"][0]["arrays"].__setitem__(0, 99),
    "needs": lambda index: index.update(needs=None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_an_error(saved: Path, damage: str) -> None:
    rewrite(saved, DAMAGES[damage])
    with pytest.raises(FreezeError, match="is damaged"):
        hlo_dispatch.load(saved)


def test_a_damaged_file_is_an_error(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        array = archive.getinfo("array-0.bin")
    # In the array itself, behind a header that is as long as its alignment asks for.
    header = array.header_offset + 30 + sum(struct.unpack_from("<HH", content, array.header_offset + 26))
    place = header + array.compress_size // 2
    for name, damaged in {
        "cut": content[: len(content) // 2],
        "flipped": content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
        "empty": b"",
        "text": b"not an archive",
    }.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(FreezeError, match="is damaged"):
            hlo_dispatch.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        hlo_dispatch.load(tmp_path / "absent")
    rewrite(saved, lambda index: None, replace={"program-0.pb": b"\xff\xff not a module"})
    with pytest.raises(FreezeError, match="is damaged"):
        hlo_dispatch.load(saved)
    rewrite(saved, lambda index: None, drop="array-0.bin")
    with pytest.raises(FreezeError, match="is damaged"):
        hlo_dispatch.load(saved)


def test_a_file_that_calls_back_into_python_is_refused(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        module = Module.from_bytes(archive.read("program-0.pb"))
    calls = [
        instruction
        for computation in module.proto.computations[:]
        for instruction in computation.instructions[:]
        if instruction.custom_call_target
    ]
    assert calls
    calls[-1].custom_call_target = "xla_ffi_python_cpu_callback"
    rewrite(saved, lambda index: None, replace={"program-0.pb": module.to_bytes()})
    with pytest.raises(FreezeError, match="calls back into Python"):
        hlo_dispatch.load(saved)


def test_a_file_appears_whole_or_not_at_all(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()
    fast = hlo_dispatch.freeze(network, weights())
    fast(numbers(3))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "open", full)
        with pytest.raises(OSError, match="No space left"):
            fast.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    fast.save(saved)
    assert saved.read_bytes() != before
    mask = os.umask(0)
    os.umask(mask)
    assert saved.stat().st_mode & 0o777 == 0o666 & ~mask
    with pytest.raises(OSError, match="absent"):
        fast.save(saved.parent / "absent" / "network")


def test_only_libraries_that_are_called_have_to_match(tmp_path: Path) -> None:
    with hlo_dispatch.enabled(policy="never"):
        fast = hlo_dispatch.freeze(network, weights())
        fast(numbers(5))
        fast.save(tmp_path / "stock")
    with zipfile.ZipFile(tmp_path / "stock") as archive:
        assert json.loads(archive.read("programs.json"))["needs"]["libraries"] == {}
    assert machine_compatibility.differences(machine_compatibility.what_it_needs(["oneDNN"])) == []
