"""The plugin's scan of a module's bytes looks for every opcode that the package's own tables begin with."""

import re
from pathlib import Path

from hlo_dispatch.match.elementwise.finder import OPCODES
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.pattern.op_kinds import MAY_BE_ANCHORS

SEEN_BY_ANOTHER = {"gather"}
"""Only before a reduction, which is looked for; a gather alone, as indexing is, starts no rewriter."""
WIRE = Path(__file__).parents[2] / "kernels" / "pjrt" / "wire.cc"


def test_every_opcode_of_the_tables() -> None:
    body = WIRE.read_text().partition("bool HasSomethingToMatch")[2]
    listed = set(re.findall(r'"([a-z0-9-]+)"', body))
    opcodes = MAY_BE_ANCHORS | OPCODES | {routine.opcode for routine in load_tables().routines}
    assert listed >= opcodes - SEEN_BY_ANOTHER
