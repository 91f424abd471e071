"""Library descriptions (`Description`: how to find one) and loaded libraries (`Library`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Library:
    """A library that is loaded in this process."""

    name: str
    """Its name: oneDNN, oneMKL."""
    path: Path
    """The file."""
    version: str
    """The library's own version string, such as 3.13.2."""
    runtime: str
    """Threading runtime: sycl, openmp, tbb, threadpool, sequential."""
    note: str = ""
    """Why the runtime is not the best one; empty where it is."""
    bound: bool = False
    """Whether each of its threads has a processor of its own (thread_binding.py)."""

    @property
    def threads(self) -> str:
        """The threading runtime, for messages and for the key of measurements."""
        return f"{self.runtime}, a processor for each thread" if self.bound else self.runtime


@dataclass(frozen=True)
class Description:
    """A library that kernels call, before anything of it is loaded."""

    name: str
    """Its name in the kernel registry (kernels/common/registry.h)."""
    load: Callable[[], Library]
    """Finds and loads it; raises LibraryError with a sentence for the user where that fails."""
    is_separate: bool = True
    """Whether it can be missing although our native part is present."""
    distribution: str = ""
    """The Python package whose stock part JAX calls, too: its version counts even where we cannot use it."""
    variable: str = ""
    """The environment variable that names another file of it."""
    settings: tuple[str, ...] = ()
    """Prefixes of the environment variables that change its implementations or its threads."""
