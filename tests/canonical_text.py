"""Canonical HLO text, the same on every machine: the contents of golden files."""

from __future__ import annotations

import re
import textwrap

from jaxlib import _hlo

_WIDTH = 118


def canonical_text(serialized: bytes) -> str:
    """A module as text without metadata, without what depends on the libraries' releases, long lines wrapped."""
    options = _hlo.HloPrintOptions.short_parsable()
    options.print_metadata = False
    text = _hlo.HloModule.from_serialized_hlo_module_proto(serialized).to_string(options)
    text = re.sub(r'library = "[^"]*"', 'library = "…"', text)
    text = re.sub(r"scratch = \d+ : i64", "scratch = …", text)
    text = re.sub(r"u8\[\d+\]\{0\}", "u8[…]", text)
    lines = [wrapped for line in text.splitlines() if line.strip() for wrapped in _wrap(line)]
    return "\n".join(lines) + "\n"


def _wrap(line: str) -> list[str]:
    # An attribute is not torn apart: its spaces are made unbreakable meanwhile.
    glued = re.sub(r" ([=:]) ", r"~\1~", line)
    glued = re.sub(r"<[^>]*>", lambda match: match[0].replace(" ", "~"), glued)
    lines = textwrap.wrap(
        glued, _WIDTH, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [wrapped.replace("~", " ") for wrapped in lines]
