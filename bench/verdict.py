"""Verdict on one program, timed in all ways: the limits, whether it keeps them, and the lines that say so."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from dataclasses import dataclass, field

KINDS = ("tiny", "small", "regions", "training", "models", "frozen")
LIMITS = {"models": 0.98, "training": 0.95, "small": 0.95, "regions": 0.95, "tiny": 0.98, "frozen": 0.98}
"""Of the speed of what a program is compared with."""
MOST_MEMORY = 1.1
"""Of the unfrozen program's peak, where weights are donated: held by the caller they exist twice."""
STOCK, FIRST, SETTLED, FROZEN = "stock", "first compile", "later compiles", "frozen"
ALWAYS = "always"
"""A training step under that policy."""
DONATED = "frozen, weights donated"


@dataclass
class Result:
    """One program, against stock; a training step against the faster of stock and the policy "always"; a frozen one
    against the same that is dispatched and not frozen."""

    kind: str
    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    """"stock", "first compile" (of a model), "later compiles", "frozen" → median seconds of a call."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Time of what it is compared with over that of each other way, in the same turns."""
    calls: dict[str, int] = field(default_factory=dict)
    """Kernel calls in each dispatched program."""
    compile_more: float = 0.0
    """Seconds that the first dispatched compile took longer than stock's; a frozen one its first call."""
    is_unchanged: bool = False
    """Whether every compiled program is, letter by letter, stock XLA's; nothing is prepared of a frozen one either."""
    difference: float = 0.0
    """Of a frozen one: its results from the unfrozen one's, in half precision from those in f32; the largest over the
    largest value."""
    allowed: float = 0.0
    """What that may be."""
    peak: dict[str, int] = field(default_factory=dict)
    """"later compiles", "frozen", "frozen, weights donated" → most bytes that a process of its own had resident."""
    spent: float = 0.0
    """Seconds that all of this took."""
    problem: str = ""
    """Why there is no answer."""

    @property
    def verdict(self) -> str:
        """`ok`, `unchanged`, `SLOWER`, `CHANGED`, `OTHER TIME` (of a tiny one), `WRONG`, `LARGER`, or `none: …`."""
        if self.problem:
            return f"none: {self.problem}"
        limit = LIMITS[self.kind]
        if self.kind == "tiny":
            if not self.is_unchanged:
                return "CHANGED"
            return "unchanged" if all(limit <= r <= 2 - limit for r in self.ratios.values()) else "OTHER TIME"
        # Written so that NaN is a difference.
        if not self.difference <= self.allowed:
            return "WRONG"
        if not self.is_dispatched:
            return "unchanged"
        if self.worst < limit:
            return "SLOWER"
        return "LARGER" if self.memory > MOST_MEMORY else "ok"

    @property
    def is_good(self) -> bool:
        return self.verdict in ("ok", "unchanged")

    def is_another(self, way: str) -> bool:
        """Whether that is another program than the reference, letter by letter or but for a cut."""
        if self.kind == "training" and self.reference == ALWAYS:
            return True
        return bool(self.calls[way]) or (self.kind == "frozen" and not self.is_unchanged)

    @property
    def is_dispatched(self) -> bool:
        """Whether any way is another program than stock's."""
        return any(self.is_another(way) for way in self.calls)

    @property
    def reference(self) -> str:
        """The way that the others are compared with."""
        if self.kind == "training":
            return min((STOCK, ALWAYS), key=self.seconds.__getitem__)
        return SETTLED if self.kind == "frozen" else STOCK

    @property
    def worst(self) -> float:
        """The lowest ratio of a way that is another program: without a kernel call it is stock XLA, but for noise."""
        return min(ratio for way, ratio in self.ratios.items() if self.is_another(way))

    @property
    def gain(self) -> float:
        """Seconds that a call is shorter in the end."""
        way = FROZEN if self.kind == "frozen" else SETTLED
        return self.seconds[self.reference] - self.seconds[way] if self.calls and self.is_another(way) else 0.0

    @property
    def memory(self) -> float:
        """Peak over the unfrozen program's, where the caller gives the weights away; 0 where it is not known."""
        return self.peak[DONATED] / self.peak[SETTLED] if self.peak else 0.0

    @property
    def _memories(self) -> str:
        before = self.peak[SETTLED]
        return f"{self.peak[FROZEN] / before:.2f}x, weights donated {self.memory:.2f}x, of {before / 1e6:.0f} MB"

    @property
    def line(self) -> str:
        """For a person."""
        if self.problem:
            return f"{self.kind:9}{self.name:52} {self.verdict}"
        times = " ".join(f"{way}: {ratio:.3f}x, {self.calls[way]} calls;" for way, ratio in self.ratios.items())
        said = ""
        if self.kind == "training":
            said = f"stock {self.seconds[STOCK] * 1e3:.3f} ms, always {self.seconds[ALWAYS] * 1e3:.3f} ms; "
        if self.kind == "frozen":
            said = f"unfrozen {self.calls[SETTLED]} calls; stock {self.seconds[STOCK] * 1e3:.3f} ms; "
            said += f"differs by {self.difference:.1e} of {self.allowed:.1e}; "
            said += f"memory {self._memories}; " if self.peak else ""
        return (
            f"{self.kind:9}{self.name:52} {self.seconds[self.reference] * 1e3:10.3f} ms {times} {said}"
            f"compile +{self.compile_more:.1f} s; {self.verdict} ({self.spent:.0f} s)"
        )


def summary(kind: str, results: list[Result]) -> str:
    """Summary: the number of faster programs, the mean speedup, the worst one."""
    known = [result for result in results if not result.problem]
    own = [result for result in known if result.is_dispatched]
    bad = [result.name for result in known if not result.is_good]
    text = f"{kind}: {len(own)} of {len(known)} {'frozen' if kind == 'frozen' else 'dispatched'}"
    if own:
        worst = min(own, key=lambda result: result.worst)
        gain, before = sum(r.gain for r in own), sum(r.seconds[r.reference] for r in known)
        text += f"; worst {worst.worst:.3f}x ({worst.name})"
        text += f"; {gain * 1e3:.1f} ms of {before * 1e3:.1f} ms saved"
        largest = max(own, key=lambda result: result.memory)
        text += f"; most memory, weights donated, {largest.memory:.2f}x ({largest.name})" if largest.peak else ""
    what = "slower, larger or wrong" if kind == "frozen" else f"below the limit of {LIMITS[kind]}"
    text += f"; {what}: {len(bad)}" + (f" ({', '.join(bad)})" if bad else "")
    unknown = [result.name for result in results if result.problem]
    return text + (f"; not measured: {', '.join(unknown)}" if unknown else "")
