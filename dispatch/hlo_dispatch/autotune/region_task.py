"""Task of a measurement request: its extracted module and variants, its words in messages, its reproducers' folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from hlo_dispatch.autotune.compare.measure import Build, Task, Unmeasurable
from hlo_dispatch.autotune.compare.reproducer import Reproducer
from hlo_dispatch.autotune.findings import Names
from hlo_dispatch.autotune.measurement_requests import MeasurementRequest
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.selection.candidate import KernelSupportQuery, variants_to_measure
from hlo_dispatch.selection.measurements import Pairs


def task_of(
    request: MeasurementRequest,
    support_query: KernelSupportQuery,
    *,
    most_variants: int,
    build: Build,
    threads: int,
    split: Splitter | None,
    before: Mapping[str, Pairs],
) -> Task:
    """The task of one request.

    Args:
        most_variants: maximum number of variants besides stock.
        before: variant → undisturbed samples of earlier processes.

    Raises:
        Unmeasurable: the region cannot be extracted.
    """
    default = request.default
    extracted = request.extractor.extract(default.candidate.match.in_module)
    if isinstance(extracted, Refusal):
        raise Unmeasurable(extracted.sentence)
    formula, shape, kernel = names_of(request)
    return Task(
        extracted=extracted,
        variants=variants_to_measure(default, support_query, most_variants),
        build=build,
        tolerance=request.numerics.tolerance,
        footprint=request.footprint,
        shares_fusion=request.shares_fusion,
        is_only_region=request.is_only_region,
        threads=threads,
        formula=formula,
        shape=shape,
        kernel=kernel,
        split=split,
        before=before,
    )


def names_of(request: MeasurementRequest) -> Names:
    match = request.default.candidate.match
    return Names(match.formula, str(match.output.shape).partition("{")[0], match.kernel)


def reproducer_saver(directory: Path, request: MeasurementRequest) -> Callable[[str, Reproducer], str]:
    """Stores reproducers of a request in the store's directory: (variant, reproducer) → where it is."""

    def save(variant: str, reproducer: Reproducer) -> str:
        name = "".join(letter if letter.isalnum() else "-" for letter in variant)
        try:
            return str(reproducer.keep(directory / "reproducers" / f"{request.digest[:16]}-{name}"))
        except OSError as problem:
            return f"(could not be kept: {problem})"

    return save
