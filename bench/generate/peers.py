"""Peers of the bench: what each is called, what it needs, and which file runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module, util
from typing import Any


@dataclass(frozen=True)
class Peer:
    """A library that generates text, too."""

    module: str
    """Of this package: what writes its files and runs them."""
    packages: Mapping[str, str]
    """Module → what to install; the first is the library itself."""
    packages_of_integers: Mapping[str, str] = field(default_factory=dict[str, str])
    """What weights of integers need besides."""


PEERS = {
    "llama.cpp": Peer("in_llama_cpp", {"llama_cpp": "llama-cpp-python", "gguf": "gguf"}),
    "OpenVINO": Peer("in_openvino", {"openvino": "openvino"}, {"nncf": "nncf"}),
}


def library(peer: str) -> Any:
    """The peer's file of this package."""
    return import_module(f"{__package__}.{PEERS[peer].module}")


def missing(peer: str, precision: str) -> str:
    """What to install, where something is missing."""
    needed = dict(PEERS[peer].packages)
    if precision.startswith("int"):
        needed |= PEERS[peer].packages_of_integers
    absent = [package for module, package in needed.items() if util.find_spec(module) is None]
    return f"not installed: pip install {' '.join(absent)}" if absent else ""
