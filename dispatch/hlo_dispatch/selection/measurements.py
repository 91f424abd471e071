"""Measurement results: one region's or program's timings, validation and choice, and the process-wide table of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

STOCK = "stock"
FAR_BEHIND = 1.0
"""Slowdown, as a fraction of stock's time, that a provisional measurement shows: a kernel that takes twice as long."""
MAX_FAILED_ATTEMPTS = 2
"""Number of processes that try to measure a region or program; after them the cost model decides it."""
MAX_DISTURBED_ATTEMPTS = 4
"""Number of compiles that measure a region or program on a busy machine; after them the cost model decides it."""


Pairs = tuple[tuple[float, float], ...]
"""Samples of an interleaved trial: (stock's seconds, the candidate's) of each turn."""


@dataclass(frozen=True)
class Measurement:
    """The measurement of one region or program: times, gain, validation errors and the chosen variant."""

    chosen: str
    """The variant that won (selection/candidate.py), or "stock"."""
    seconds: Mapping[str, float]
    """Variant, or "stock" → median seconds of a call (the minimum where it is provisional), context ops
    included."""
    gain: float = 0.0
    """Seconds that the chosen variant saves; 0 for stock."""
    noise: float = 0.0
    """Seconds: how uncertain the difference between stock and the best variant is."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variant → why it must not be used: its result was wrong."""
    differences: Mapping[str, float] = field(default_factory=dict[str, float])
    """Variant → largest difference from stock (or from float64) over the largest value."""
    shares_fusion: bool = False
    """Whether the region shares fusions with its neighbours; measured alone it then shows less than its gain."""
    why: str = ""
    """The rule that the best variant missed, where stock was chosen although that seemed faster."""
    stock_error: float = 0.0
    """How far stock's own results are from float64's, over the largest value, where they are wrong; else 0. The kernel
    that is right is chosen then, whatever its time."""
    timed_out_after: float = 0.0
    """Seconds after which stock's code for the region was given up; 0: it ended. All other results are missing then."""
    thorough: bool = False
    """Whether every variant was measured, or only those most likely to win."""
    formula: str = ""
    shape: str = ""
    kernel: str = ""
    provisional: bool = False
    """Whether other work disturbed the measurement: later processes measure again. Until then a variant is chosen that
    was far ahead of stock, and otherwise ("stock") the cost model decides."""
    disturbed_attempts: int = 0
    """Number of compiles that have measured it while the machine was busy."""
    samples: Mapping[str, Pairs] = field(default_factory=dict[str, Pairs])
    """Variant (of a program: key of its module) → the undisturbed samples so far, where it is provisional, or where
    they do not show which is faster: a later process goes on with them."""
    trip_limit: int = 0
    """Maximum loop iterations of a whole-program trial, where that is fewer than the program's own; else 0."""
    is_part: bool = False
    """Whether a whole-program trial ran the program's leading part, which represents the rest."""
    failed_attempts: int = 0
    """Number of processes that failed to measure it; all other results are then missing."""

    @property
    def loss(self) -> float:
        """Slowdown of the best variant, as a fraction of stock's time; negative where it wins."""
        best = self._best_variant()
        return (self.seconds[best] - self.stock) / self.stock if best is not None and self.stock else 0.0

    @property
    def is_undecided(self) -> bool:
        """Whether it decides nothing meanwhile: it is provisional, and stock is not far ahead."""
        return self.provisional and self.chosen == STOCK and self.loss < FAR_BEHIND

    @property
    def is_worth_remeasuring(self) -> bool:
        """Whether the next compile measures it again: it is provisional or failed, and its attempts are not used up."""
        if self.failed_attempts:
            return not self.is_given_up and not self.timed_out_after
        return self.provisional and self.disturbed_attempts < MAX_DISTURBED_ATTEMPTS

    @property
    def is_given_up(self) -> bool:
        """Whether the failed attempts are used up; only explicit tuning measures it again."""
        return self.failed_attempts >= MAX_FAILED_ATTEMPTS

    @property
    def stock(self) -> float:
        """Seconds of stock XLA; 0 where only the results were compared."""
        return self.seconds.get(STOCK, 0.0)

    def sentence(self, implementation: str = "") -> str:
        """`measured: 0.41 ms against stock 0.92 ms`; of stock also the rule that a faster variant missed."""
        if self.timed_out_after:
            return f"not measured: XLA's own code for it alone had not ended after {self.timed_out_after:.1f} s"
        if self.provisional:
            return f"provisional: the machine was busy ({replace(self, provisional=False).sentence(implementation)})"
        if self.failed_attempts:
            return "not measured: it cannot be run alone, or noise hid which is faster"
        best = self.chosen if self.chosen != STOCK else self._best_variant()
        if best is None:
            return f"wrong result: {'; '.join(self.refused.values())}"
        what = f" ({implementation})" if implementation else ""
        if self.stock_error and self.chosen != STOCK:
            error = f"by {self.stock_error:.2g} of the largest value" if math.isfinite(self.stock_error) else "with NaN"
            return f"stock is wrong {error}, as float64 shows; measured: {in_words(self.seconds[best])}{what}"
        if self.chosen != STOCK:
            return f"measured: {in_words(self.seconds[best])}{what} against stock {in_words(self.stock)}{self._with}"
        but = f", but {self.why}" if self.why else ""
        return f"measured: stock {in_words(self.stock)} against {in_words(self.seconds[best])}{what}{but}{self._with}"

    @property
    def _with(self) -> str:
        loops = f", with loops of at most {self.trip_limit} iterations" if self.trip_limit else ""
        return (", by the first of its equal layers" if self.is_part else "") + loops

    def _best_variant(self) -> str | None:
        times = {variant: s for variant, s in self.seconds.items() if variant != STOCK and variant not in self.refused}
        return min(times, key=times.__getitem__) if times else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the stored names, ready for JSON."""
        stored = {name: value for name, value in asdict(self).items() if value or name not in _NEWER_FIELDS}
        return {_STORED_NAMES.get(name, name): value for name, value in stored.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measurement:
        """The inverse of `to_dict`.

        Raises:
            ValueError: the values are not those of a measurement.
        """
        try:
            made = cls(**{_FIELD_NAMES.get(name, name): value for name, value in values.items()})
            seconds = {str(variant): float(value) for variant, value in made.seconds.items()}
            # The values come from a file and may have any type.
            is_text = isinstance(made.chosen, str)  # pyright: ignore[reportUnnecessaryIsInstance]
            known = is_text and (made.chosen == STOCK or made.chosen in seconds)
            refused = {str(variant): str(why) for variant, why in made.refused.items()}
            samples = {str(v): tuple((float(a), float(b)) for a, b in pairs) for v, pairs in made.samples.items()}
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a measurement: {error}") from None
        if not known or made.chosen in refused:
            raise ValueError(f"not a measurement: {made.chosen!r} is chosen and was not measured")
        return replace(made, samples=samples) if samples else made


_STORED_NAMES = {
    "shares_fusion": "is_entangled",
    "timed_out_after": "endless",
    "disturbed_attempts": "disturbed",
    "trip_limit": "trips",
    "failed_attempts": "vain",
}
"""Field → its key in the measurement store, in exports and in `--json` output, where the two differ."""
_NEWER_FIELDS = frozenset(("samples", "is_part"))
"""Fields that the previous release does not read; they are stored where they say something."""
_FIELD_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}

DECIDED_BY_PROGRAM = Measurement("", {})
"""Placeholder for regions that the plan strategy (strategies.py) dispatches whatever was measured of them alone."""


def in_words(seconds: float) -> str:
    """`410 µs`, `1.2 ms`."""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


class KnownMeasurements:
    """Thread-safe table of the measurements known in this process: region digest → measurement."""

    def __init__(self, known: Mapping[str, Measurement] | None = None) -> None:
        self._known = dict(known or {})
        self._lock = ForkSafeLock()
        self._fingerprint: str | None = None

    def get(self, region: str) -> Measurement | None:
        """The region's measurement; None: unknown."""
        return self._known.get(region)

    def add(self, region: str, measured: Measurement) -> None:
        """Record a measurement for the rest of the process."""
        with self._lock:
            self._known[region] = measured
            self._fingerprint = None

    def replace(self, known: Mapping[str, Measurement]) -> None:
        """Replace the whole table."""
        with self._lock:
            self._known = dict(known)
            self._fingerprint = None

    def __len__(self) -> int:
        return len(self._known)

    @property
    def fingerprint(self) -> str:
        """Hash of all choices; part of the key of JAX's compilation cache."""
        with self._lock:
            if self._fingerprint is None:
                choices = sorted(f"{region} {_choice(measured)}" for region, measured in self._known.items())
                self._fingerprint = hashlib.sha256("\n".join(choices).encode()).hexdigest()[:16]
            return self._fingerprint


def _choice(measured: Measurement) -> str:
    return f"provisional {measured.chosen}" if measured.provisional else measured.chosen
