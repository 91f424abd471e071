"""Build of a frozen program: dispatches the optimized module, then splits it into prologue and steady-state program."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from hlo_dispatch.analysis.binding_time import weights_rule
from hlo_dispatch.driver.measured_pipeline import with_measurements
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.vendor.prepacking import prepack_targets


@dataclass(frozen=True)
class FrozenModule:
    """An optimized module, as XLA made it, and which of its parameters are frozen."""

    module: Module
    frozen: AbstractSet[int]
    """Numbers of the entry's frozen parameters."""
    widened: AbstractSet[int] = frozenset()
    """Those that are stored narrower than they are computed with; values computed from them belong to the steady-state
    program where they would be larger."""
    may_be_activations: bool = False
    """Whether some frozen parameters may be what is computed on, and not weights: nothing but the preparation of
    weights is static then (`weights_rule`)."""

    def pipeline(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline for this module."""
        rule = weights_rule(prepack_targets()) if self.may_be_activations else pipeline.static_rule
        return replace(pipeline, frozen=frozenset(self.frozen) - self.widened, static_rule=rule)

    def split(self, pipeline: Pipeline, *, details: bool = False) -> Split:
        """Dispatch a copy's regions, by a pipeline for this module, and split off the prologue.

        Args:
            details: as for `Pipeline.run`.
        """
        return pipeline.freeze(self.module.copy(), self.widened, details=details)


def build(module: FrozenModule, pipeline: Pipeline, *, details: bool = False) -> Split:
    """Dispatch a module's regions and split off the prologue, which depends on frozen parameters alone.

    Args:
        pipeline: the pass pipeline; its policy's measurements happen here.
        details: as for `Pipeline.run`.
    """
    return module.split(with_measurements(module.pipeline(pipeline)), details=details)
