"""Attribute fuzzer, huge-page advice: valid calls, whose results are dead."""

from __future__ import annotations

from wire_calls import LOADED, Array, WireCall, tagged


def valid_calls() -> list[WireCall]:
    """Of one buffer, of several, and of one that is large enough to be advised."""
    return [
        WireCall(
            "own.huge_pages",
            {"abi": tagged(1), "library": tagged(LOADED), "bytes": tagged(sizes)},
            [],
            [Array("u8", [size]) for size in sizes],
        )
        for sizes in ([4096], [0, 100, 1 << 16], [32 << 20])
    ]
