"""Adapters of Keras models, and of KerasHub's language models, whose `generate` is one program for each sampler."""

# pyright: basic
# frameworks have no complete type hints.
from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import nullcontext
from typing import Any

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.model_adapter import FrameworkModel, Generation, option_key
from hlo_dispatch.freezing.purity_check import refuse_change
from hlo_dispatch.freezing.signature import trace_state_clean
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock


class KerasModel(FrameworkModel):
    """Adapter of a `keras.Model` or layer."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        keras: Any = sys.modules["keras"]
        if keras.backend.backend() != "jax":
            raise FreezeError(f"Keras runs on {keras.backend.backend()}: set KERAS_BACKEND=jax before it is imported")
        if not model.built:
            raise FreezeError(f"{model.name} has no weights yet: call it once, or model.build(shape), before freeze")

    def weights(self, model: Any) -> Any:
        return {f"{number} {variable.name}": variable.value for number, variable in enumerate(model.variables)}

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        model = self.model
        if "training" in _names(model.call, args, kwargs):
            raise FreezeError("a frozen model infers: leave `training` out of the call")
        return self.stateless(weights, (), lambda: model(*args, training=False, **kwargs))[0]

    def stateless(
        self, weights: Any, state: Collection[tuple[Any, Any]], run: Callable[[], Any]
    ) -> tuple[Any, list[Any]]:
        """The value of `run` with these weights, and the new values of the variables of `state`.

        Args:
            state: variables that are no weights, with their values.

        Raises:
            FreezeError: it changes a weight.
        """
        variables = self.model.variables
        values = [weights[f"{number} {variable.name}"] for number, variable in enumerate(variables)]
        mapping = [*zip(variables, values, strict=True), *state]
        with sys.modules["keras"].StatelessScope(state_mapping=mapping) as scope:
            before = _values(scope, variables)
            result = run()
            for variable, old, new in zip(variables, before, _values(scope, variables), strict=True):
                refuse_change(old, new, variable.path)
            return result, _values(scope, [variable for variable, _ in state])


class KerasLanguageModel(KerasModel):
    """Adapter of a CausalLM of KerasHub; its weights are frozen, the seeds of its sampler are arguments and results.

    It keeps the model, which reads and writes text in every call.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._seeds = ForkSafeLock()

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args or not isinstance(args[0], Generation):
            return super().call(weights, args, kwargs)
        (stop_token_ids, sampler), inputs, seeds = args[0].values, args[1], args[2]
        state = list(zip(sampler.variables, seeds, strict=True))
        return self.stateless(weights, state, lambda: self.model.generate_step(inputs, stop_token_ids))

    def generate(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not trace_state_clean():
            raise FreezeError(
                "generate returns text and advances a seed: call it outside of jax.jit, jax.grad or jax.vmap"
            )
        keras: Any = sys.modules["keras"]
        sampler = self.model.sampler

        def generate_function(inputs: Any, stop_token_ids: Iterable[int] | None = None) -> Any:
            stop = None if stop_token_ids is None else tuple(stop_token_ids)
            generation = Generation((stop, _sampler_key(sampler)), (stop, sampler))
            tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
            with self._seeds if sampler.variables else nullcontext():  # no two calls draw with one seed
                outputs, seeds = call(generation, tensors, [variable.value for variable in sampler.variables])
                for variable, seed in zip(sampler.variables, seeds, strict=True):
                    variable.assign(seed)
            return outputs

        # The user's model keeps its own function: this is another object with the same attributes.
        twin = object.__new__(type(self.model))
        twin.__dict__.update(vars(self.model), generate_function=generate_function)
        return twin.generate(*args, **kwargs)

    def release(self) -> None:
        """Nothing is dropped."""


def _sampler_key(sampler: Any) -> Hashable:
    """Equal for KerasHub's samplers of one class and configuration; of another's class, for one object as it is."""
    if type(sampler).__module__.startswith("keras_hub."):
        return type(sampler), repr(sorted(sampler.get_config().items()))
    return option_key(sampler)


def _values(scope: Any, variables: Iterable[Any]) -> list[Any]:
    return [scope.get_current_value(variable) for variable in variables]


def _names(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Collection[str]:
    """Names of the parameters that a call passes."""
    try:
        return inspect.signature(fn).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # the call's own error is better
        return kwargs
