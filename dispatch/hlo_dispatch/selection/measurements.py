"""What measuring a region found, as a value, and everything known of it in this process."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

STOCK = "stock"
GUESSED, TOGETHER, APART, EVERYTHING = "guessed", "together", "apart", "everything"
REGARDLESS = "everything, however slow alone"
"""Of a whole program: every region as the heuristic has it; or as it was measured, where entangled regions that lost
alone are as the heuristic has them; or only those that win alone; or every region in a kernel, but for those that lost
by far: calls that are one sequence cost less than each of them shows alone; or those as well, since one region that was
measured while the machine was busy would cut the sequence that it belongs to."""
ALL_IN_KERNELS = frozenset((EVERYTHING, REGARDLESS))
"""Modes in which what lies between calls joins them, too."""
BY_FAR = 1.0
"""In parts of stock's time: what loses more than that alone is not tried in the company of others."""


MOST_VAIN = 2
"""So many processes try to measure a region, or a program; who still knows nothing then leaves it to the heuristic."""
MOST_DISTURBED = 4
"""So many compiles measure a region, or a program, while the machine is busy; the cost model has it from then on."""
SURE = 0.5
"""Of stock's time: what a region gains alone is to be believed at once from here on."""


@dataclass(frozen=True)
class Measured:
    """One region's measurement."""

    chosen: str
    """The variant that won (selection/candidate.py), or "stock"."""
    seconds: Mapping[str, float]
    """Form, or "stock" → median seconds of a call (the least where it is provisional), what surrounds the region
    included."""
    gain: float = 0.0
    """Seconds that the chosen variant saves; 0 for stock."""
    noise: float = 0.0
    """Seconds: how uncertain the difference between stock and the best variant is."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Form → why it must not be used: its result was wrong."""
    differences: Mapping[str, float] = field(default_factory=dict[str, float])
    """Form → largest difference from stock (or from float64) over the largest value."""
    is_entangled: bool = False
    """Whether neighbours share the region's fusions: alone it shows less than it gains together with them."""
    why: str = ""
    """Where stock was chosen although the best variant seemed to be faster: what rule it did not meet."""
    stock_error: float = 0.0
    """How far stock's own results are from float64's, over the largest value, where they are wrong; else 0. The kernel
    that is right is chosen then, whatever its time."""
    endless: float = 0.0
    """Seconds after which XLA's own code for the region had not ended; nothing else is known of it then."""
    thorough: bool = False
    """Whether every variant was measured, or only those most likely to win."""
    formula: str = ""
    shape: str = ""
    kernel: str = ""
    provisional: bool = False
    """Whether other work disturbed the measurement: later processes measure again. Until then a variant is chosen that
    was far ahead of stock, and otherwise ("stock") the cost model decides."""
    disturbed: int = 0
    """How many compiles have measured it while the machine was busy."""
    trips: int = 0
    """Of a whole program: how many iterations its loops ran at most, where that was fewer than they have; else 0."""
    vain: int = 0
    """How many processes have tried to measure it without an answer; nothing else is known of it then."""

    @property
    def loss(self) -> float:
        """How much longer than stock the best variant takes, in parts of stock's time; negative where it wins."""
        best = self._best_variant()
        return (self.seconds[best] - self.stock) / self.stock if best is not None and self.stock else 0.0

    @property
    def is_open(self) -> bool:
        """Whether the next compile measures it again: it is provisional, and was not measured so too often."""
        return self.provisional and self.disturbed < MOST_DISTURBED

    @property
    def is_hopeless(self) -> bool:
        """Whether only tuning tries once more."""
        return self.vain >= MOST_VAIN

    @property
    def stock(self) -> float:
        """Seconds of stock XLA; 0 where only the results were compared."""
        return self.seconds.get(STOCK, 0.0)

    def sentence(self, implementation: str = "") -> str:
        """`measured: 0.41 ms against stock 0.92 ms`; of stock also what spoke against a variant that seemed faster."""
        if self.endless:
            return f"not measured: XLA's own code for it alone had not ended after {self.endless:.1f} s"
        if self.provisional:
            return f"provisional: the machine was busy ({replace(self, provisional=False).sentence(implementation)})"
        if self.vain:
            return "measured in vain: it cannot be run alone, or noise hid who is faster"
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
        return f", with loops of at most {self.trips} iterations" if self.trips else ""

    def _best_variant(self) -> str | None:
        times = {variant: s for variant, s in self.seconds.items() if variant != STOCK and variant not in self.refused}
        return min(times, key=times.__getitem__) if times else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measured:
        """The inverse of `to_dict`.

        Raises:
            ValueError: the values are not those of a measurement.
        """
        try:
            made = cls(**values)
            seconds = {str(variant): float(value) for variant, value in made.seconds.items()}
            # From a file, where it may be anything.
            is_text = isinstance(made.chosen, str)  # pyright: ignore[reportUnnecessaryIsInstance]
            known = is_text and (made.chosen == STOCK or made.chosen in seconds)
            refused = {str(variant): str(why) for variant, why in made.refused.items()}
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a measurement: {error}") from None
        if not known or made.chosen in refused:
            raise ValueError(f"not a measurement: {made.chosen!r} is chosen and was not measured")
        return made


TAKEN = Measured("", {})
"""Nothing is said of the region itself: the program is fastest, or is tried, with every region in a kernel."""


def in_words(seconds: float) -> str:
    """`410 µs`, `1.2 ms`."""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


class Knowledge:
    """Measurements by region digest, for this machine; safe to use from several threads."""

    def __init__(self, known: Mapping[str, Measured] | None = None) -> None:
        self._known = dict(known or {})
        self._lock = threading.Lock()
        self._fingerprint: str | None = None

    def get(self, region: str) -> Measured | None:
        """What is known of the region."""
        return self._known.get(region)

    def add(self, region: str, measured: Measured) -> None:
        """Remember a measurement for the rest of the process."""
        with self._lock:
            self._known[region] = measured
            self._fingerprint = None

    def replace(self, known: Mapping[str, Measured]) -> None:
        """Know exactly this from here on."""
        with self._lock:
            self._known = dict(known)
            self._fingerprint = None

    def __len__(self) -> int:
        return len(self._known)

    @property
    def fingerprint(self) -> str:
        """Changes whenever a choice does; part of the key of JAX's compilation cache."""
        with self._lock:
            if self._fingerprint is None:
                choices = sorted(f"{region} {_choice(measured)}" for region, measured in self._known.items())
                self._fingerprint = hashlib.sha256("\n".join(choices).encode()).hexdigest()[:16]
            return self._fingerprint


def _choice(measured: Measured) -> str:
    return f"provisional {measured.chosen}" if measured.provisional else measured.chosen
