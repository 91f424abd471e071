"""What is known of a library: how it is found (`Description`), and what was found (`Library`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Library:
    """A library that is loaded in this process."""

    name: str
    """As people call it: oneDNN, oneMKL."""
    path: Path
    """The file."""
    version: str
    """As the library itself says, such as 3.13.2."""
    runtime: str
    """What its threads run on: sycl, openmp, tbb, threadpool, sequential."""
    note: str = ""
    """Why it runs on that where something else would be better; else nothing."""
    bound: bool = False
    """Whether each of its threads has a processor of its own (thread_binding.py)."""

    @property
    def threads(self) -> str:
        """The runtime, for people and for what a measurement is valid for."""
        return f"{self.runtime}, a processor for each thread" if self.bound else self.runtime


@dataclass(frozen=True)
class Description:
    """A library that kernels call, before anything of it is loaded."""

    name: str
    """As its kernels call it; C++ has the same name (kernels/common/registry.h)."""
    load: Callable[[], Library]
    """Finds and loads it; raises LibraryError with a sentence for the user where that fails."""
    is_separate: bool = True
    """Whether it can be missing where our native part is not."""
    distribution: str = ""
    """The Python package whose stock part JAX calls, too: its version counts even where we cannot use it."""
    variable: str = ""
    """The environment variable that names another file of it."""
    settings: tuple[str, ...] = ()
    """What the names of those environment variables begin with that change what it runs, or on which threads."""
