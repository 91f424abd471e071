"""`bench.hosts`: peers in processes of their own take turns, and the table compares each turn with the reference's."""

from __future__ import annotations

import re
import sys

import pytest

from hlo_dispatch.bench.hosts.models import calls_in
from hlo_dispatch.bench.hosts.turns import HostProcess, table
from hlo_dispatch.ir.text import from_text

pytestmark = pytest.mark.any_python

PYTHON = """
import time
from hlo_dispatch.bench.hosts.turns import answer_turns
answer_turns({"quick": "a fact"}, {"quick": lambda: time.sleep(0.002), "slow": lambda: time.sleep(0.02)}, 3)
"""
OTHER = """
import sys
print("ready", flush=True)
for number, _ in enumerate(sys.stdin, 1):
    print(f"{6 * number} 1.5 {8 * number} 2.5 {7 * number} 3.5 ", flush=True)
"""
CALL = """
HloModule two

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] custom-call(x), custom_call_target="hlo_dispatch.some_kernel", api_version=API_VERSION_TYPED_FFI
  z = f32[4] custom-call(y), custom_call_target="another.sort", api_version=API_VERSION_TYPED_FFI
  ROOT w = f32[4] custom-call(z), custom_call_target="hlo_dispatch.some_kernel", api_version=API_VERSION_TYPED_FFI
}
"""


def test_turns() -> None:
    peers = [HostProcess([sys.executable, "-c", PYTHON]), HostProcess([sys.executable, "-c", OTHER], name="other")]
    try:
        for peer in peers:
            peer.start()
        for _ in range(3):
            for peer in peers:
                peer.turn()
    finally:
        for peer in peers:
            peer.end()
    assert [peer.process.returncode for peer in peers if peer.process] == [0, 0]
    assert all(len(runs) == 3 for turn in peers[0].turns for runs in turn.values())
    assert min(clock for turn in peers[0].turns for clock, _ in turn["slow"]) >= 20
    lines = {line.split()[0]: line for line in table(peers, "other")}
    assert re.search(r" 14\.00 ms, least +6\.00; processor +1\.50; +1\.00 of other$", lines["other"])
    assert lines["quick"].endswith("; a fact")
    # 20 ms in each turn, against 7, 14 and 21.
    assert 20 / 14 <= float(re.findall(r"([\d.]+) of other", lines["slow"])[0]) < 3


def test_a_peer_that_ends() -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        HostProcess([sys.executable, "-c", "raise SystemExit(3)"]).start()


def test_calls_of_a_module() -> None:
    assert calls_in(from_text(CALL)) == 2
