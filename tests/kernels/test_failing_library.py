"""Failures of oneDNN during a call: no buffer of the call is released while it may be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from interposed import child, interposed

pytestmark = pytest.mark.any_processor

# Keeps a record: E executed, F failed, W waited, D destroyed a memory object.
RECORDING = """
#include <dlfcn.h>
#include <mutex>
#include <string>
namespace {
std::mutex mutex;
std::string record;
int left = -1;  // executions before the one that fails; none does if this is negative
void Note(char event) {
  std::lock_guard<std::mutex> lock(mutex);
  record += event;
}
template <typename Function>
Function Next(const char* name) { return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name)); }
}
extern "C" {
void fail_after(int executions) { record.clear(); left = executions; }
const char* events() { return record.c_str(); }
int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  if (left == 0) {
    left = -1;
    Note('F');
    return 5;
  }
  if (left > 0) --left;
  Note('E');
  return Next<int (*)(const void*, void*, int, const void*)>("dnnl_primitive_execute")(
      primitive, stream, count, arguments);
}
int dnnl_stream_wait(void* stream) {
  Note('W');
  return Next<int (*)(void*)>("dnnl_stream_wait")(stream);
}
int dnnl_memory_destroy(void* memory) {
  Note('D');
  return Next<int (*)(void*)>("dnnl_memory_destroy")(memory);
}
}
"""

PREPARED = """
import ctypes, os, sys
import numpy as np
from calls import matmul_call, tensor
from hlo_dispatch import _kernels
from hlo_dispatch.vendor import kernels, registry
random = np.random.default_rng(0)
source, weights = (random.integers(-2, 3, shape).astype(np.float32) for shape in ((64, 301), (301, 257)))
# The columns are dense: no copy of ours can bring these weights into oneDNN's layout, a reorder of its own does.
call = matmul_call(tensor(source), tensor(weights, (1, 0)))
call.spec["weights_format"] = "any"
planned = kernels.plan(call.name, call.spec)
assert getattr(planned, "reorders_weights", False), planned
library = ctypes.CDLL(os.environ["HLO_DISPATCH_ONEDNN_LIBRARY"])
library.events.restype = ctypes.c_char_p
"""

IN_XLA = (
    PREPARED
    + """
import conftest
conftest.registered.__wrapped__()
compiled = call.compiled().lower(*call.operands).compile()
run = lambda: np.asarray(compiled(*call.operands))
np.testing.assert_array_equal(run(), source @ weights)
"""
)

BY_ITSELF = (
    PREPARED
    + """
from hlo_dispatch.vendor import libraries
spec = call.spec | {"library": libraries.onednn().version, "scratch": planned.scratch_bytes}
raw = _kernels.raw_call(registry.kernels()[call.name].target, spec, [])
run = lambda: _kernels.run_raw(raw, 1)
run()
"""
)

FAILING = """
library.fail_after(1)
try:
    run()
    sys.exit("it did not fail")
except (RuntimeError, ValueError) as error:
    assert "executing" in str(error) and "runtime error" in str(error), error
print(library.events().decode().rstrip("D"))
library.fail_after(-1)
run()
run()
"""


@pytest.mark.parametrize("program", [IN_XLA, BY_ITSELF], ids=["in XLA", "by itself"])
def test_a_primitive_fails_behind_its_reorder(tmp_path: Path, program: str) -> None:
    library = interposed(tmp_path, RECORDING)
    folder = Path(__file__).parent
    paths = f"{folder}:{folder.parent}"
    done = child(program + FAILING, PYTHONPATH=paths, HLO_DISPATCH_ONEDNN_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["EFW"], "the reorder is waited for before any memory object goes"
