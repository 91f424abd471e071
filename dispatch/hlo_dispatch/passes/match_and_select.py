"""Match and select: the plan of every computation, by the policy, by measurements, or by a whole-program trial."""

from __future__ import annotations

from hlo_dispatch.analysis.binding_time import static_by_computation, static_inputs_by_computation
from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.autotune.measurement_requests import MeasurementRequests, ModuleMeasurer
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.match import Match
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.mask_redirection import redirect_masks
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.passes.program_tuner import ProgramTuner
from hlo_dispatch.selection.candidate import DefaultVariant
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.selection.measurements import Measurement
from hlo_dispatch.selection.strategies import ALL_SUPPORTED_UNCONDITIONALLY, COST_MODEL, Strategy


def flatten(module: Module, context: PassContext) -> set[int]:
    """Flatten every computation that control flow reaches into one graph, ready to be matched; changes nothing."""
    context.graphs = [(FlatGraph(module, c), small) for c, small in module.control_flow_computations()]
    if context.frozen:
        by_id = {graph.computation.id: graph for graph, _ in context.graphs}
        inputs = static_inputs_by_computation(module, context.frozen, by_id.__getitem__, rule=context.static_rule)
        for identifier, static in static_by_computation(by_id, inputs, context.static_rule).items():
            by_id[identifier].static = static
    for graph, _ in context.graphs:
        redirect_masks(graph)
    return set()


def match_and_select(module: Module, context: PassContext) -> set[int]:
    """Match and decide every pattern and anchor op, after measuring as far as the budget goes; changes nothing."""
    if context.planner.policy not in MEASURING:
        is_always = context.planner.policy == "always"
        context.plans = _plans(context, ALL_SUPPORTED_UNCONDITIONALLY if is_always else COST_MODEL)
        return set()
    requests = MeasurementRequests(
        module,
        context.table,
        context.knowledge,
        context.frozen,
        context.stock if context.is_moved else None,
        context.widened,
        has_loop_weights=bool(context.loop_weights),
    )
    if context.strategy is not None:
        context.plans = _plans(context, context.strategy, requests)
        return set()
    rewritten, stock = context.rewritten, context.stock or module
    tuner = ProgramTuner(
        stock=stock,
        requests=requests,
        knowledge=context.knowledge,
        measure=_measurer(module, context),
        support_query=context.planner.support_query,
        plan=lambda strategy: _plans(context, strategy, requests),
        rewritten=lambda module, strategy: rewritten(module, strategy, context) if rewritten is not None else None,
    )
    context.plans = tuner.choose_plans()
    context.saved = tuner.saved(context.plans)
    is_stock = tuner.is_stock or (context.needs_trial and not tuner.is_tried)
    if context.is_moved and is_stock and not any(plan.dispatched for plan in context.plans):
        return _restore(module, context)
    return set()


def _restore(module: Module, context: PassContext) -> set[int]:
    """Make the module what XLA made it."""
    assert context.stock is not None
    module.proto.CopyFrom(context.stock.proto)
    module.index()
    context.stock, context.is_moved = None, False
    context.changed.clear()
    return set()


def _measurer(module: Module, context: PassContext) -> ModuleMeasurer | None:
    if context.make_measurer is None:
        return None
    measurer = context.make_measurer(module.name)
    is_frozen = context.frozen or context.widened
    return measurer.with_frozen(frozenset(context.frozen), frozenset(context.widened)) if is_frozen else measurer


def _plans(
    context: PassContext, strategy: Strategy, requests: MeasurementRequests | None = None
) -> list[ComputationPlan]:
    """The plans of one strategy; without `requests` nothing is known."""
    if requests is not None:
        requests.begin(strategy)
    plans: list[ComputationPlan] = []
    replaced: set[int] = set()
    for graph, small in reversed(context.graphs):  # callers first: a loop that one kernel call replaces has no body
        if graph.computation.id in replaced:
            plans.append(ComputationPlan(graph))
            continue
        lookup = _no_measurement if requests is None else requests.lookup_in(graph)
        plan = context.planner.plan(graph, lookup, strategy, small=small)
        replaced |= plan.replaced_computations
        plans.append(plan)
    plans.reverse()
    return plans


def _no_measurement(match: Match, default: DefaultVariant) -> Measurement | None:
    return None
