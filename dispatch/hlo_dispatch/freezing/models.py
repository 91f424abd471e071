"""Model adapters: functions with arguments, and models of frameworks, as a pure function of weights and arguments.

No framework is imported that the user did not import: its models could not exist.
"""

# pyright: basic
# frameworks have no complete type hints.
from __future__ import annotations

import contextlib
import inspect
import sys
import weakref
from collections.abc import Collection, Generator
from typing import Any

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.purity_check import refuse_change, unchanging


class ModelAdapter:
    """Adapter of a function whose leading arguments are frozen."""

    def __init__(self, model: Any) -> None:
        self._call = model

    def frozen(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        """The weights among `freeze`'s arguments, as one pytree."""
        return frozen

    def updated(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        """The weights among `update`'s arguments, as one pytree."""
        return (model, *frozen)

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's value.

        Raises:
            FreezeError: it changes state.
        """
        with unchanging(weights):
            return self._call(*weights, *args, **kwargs)

    def rebind(self, model: Any) -> None:
        """Adopt the model that `update` took."""

    def release(self) -> None:
        """Drop references to objects with weights."""


def adapter_for(model: Any, frozen: tuple[Any, ...]) -> ModelAdapter:
    """Create the adapter of `freeze`'s arguments.

    Raises:
        FreezeError: they cannot be frozen.
    """
    if not frozen:
        for is_one, adapter in _MODELS:
            if is_one(model):
                return adapter(model)
    if not callable(model) or _is_unbound_linen(model):
        hint = "its apply and the variables: freeze(model.apply, variables)" if _is_unbound_linen(model) else ""
        hint = hint or "a function, or a model of Keras, flax.nnx, Equinox or torchax"
        raise FreezeError(f"a {type(model).__name__} alone cannot be frozen: freeze takes {hint}")
    return ModelAdapter(model)


class _Model(ModelAdapter):
    """Adapter of a framework's model in inference mode."""

    def __init__(self, model: Any) -> None:
        super().__init__(None)
        self._type = type(model)
        self.rebind(model)

    def frozen(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        return self.weights(model)

    def updated(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        if frozen or not isinstance(model, self._type):
            raise FreezeError(f"update takes what freeze took: a {self._type.__name__} with other weights")
        return self.weights(model)

    def weights(self, model: Any) -> Any:
        """The model's weights as one pytree."""
        raise NotImplementedError

    @property
    def model(self) -> Any:
        """The model.

        Raises:
            FreezeError: it no longer exists.
        """
        model = self._held if self._held is not None else self._references()
        if model is None:
            raise FreezeError("the model that this was frozen with is gone: keep it, or freeze(..., keep=True)")
        return model

    def rebind(self, model: Any) -> None:
        self._held: Any = model
        self._references = weakref.ref(model)

    def release(self) -> None:
        self._held = None


class _Keras(_Model):
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
        model, scope = self.model, sys.modules["keras"].StatelessScope
        if "training" in _names(model.call, args, kwargs):
            raise FreezeError("a frozen model infers: leave `training` out of the call")
        values = [weights[f"{number} {variable.name}"] for number, variable in enumerate(model.variables)]
        with scope(state_mapping=list(zip(model.variables, values, strict=True))) as inside:
            before = [inside.get_current_value(variable) for variable in model.variables]
            result = model(*args, training=False, **kwargs)
            for variable, value in zip(model.variables, before, strict=True):
                refuse_change(value, inside.get_current_value(variable), variable.path)
        return result


class _Nnx(_Model):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._nnx: Any = sys.modules["flax.nnx"]
        self._definition = self._split(model)[0]

    def weights(self, model: Any) -> Any:
        return self._split(model)[1]

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        model = self._nnx.merge(self._definition, weights)
        with unchanging(model):
            return model(*args, **kwargs)

    def _split(self, model: Any) -> tuple[Any, Any]:
        """Graph definition and arrays of a copy in inference mode; the model itself does not change."""
        copy = self._nnx.merge(*self._nnx.split(model))
        copy.eval()
        return self._nnx.split(copy)


class _Equinox(_Model):
    def weights(self, model: Any) -> Any:
        return sys.modules["equinox"].nn.inference_mode(model)

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return weights(*args, **kwargs)

    def rebind(self, model: Any) -> None:
        """An Equinox model is a pytree: nothing else is needed."""


class _Torchax(_Model):
    def weights(self, model: Any) -> Any:
        return sys.modules["torchax"].extract_jax(model)[0]

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _inferring(self.model) as model:
            return sys.modules["torchax"].extract_jax(model)[1](weights, args, kwargs)


def _names(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Collection[str]:
    """Names of the parameters that a call passes."""
    try:
        return inspect.signature(fn).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # the call's own error is better
        return kwargs


@contextlib.contextmanager
def _inferring(module: Any) -> Generator[Any]:
    """A torch module in evaluation mode inside the block."""
    training = [inner for inner in module.modules() if inner.training]
    module.eval()
    try:
        yield module
    finally:
        for inner in training:
            inner.training = True


def _is_a(module: str, *names: str) -> Any:
    """Predicate: instance of a class of a module, without importing the module."""

    def is_one(model: Any) -> bool:
        found = sys.modules.get(module)
        return any(isinstance(model, getattr(found, name)) for name in names if hasattr(found, name))

    return is_one


def _is_torchax(model: Any) -> bool:
    return "torchax" in sys.modules and _is_a("torch.nn", "Module")(model)


def _is_unbound_linen(model: Any) -> bool:
    return _is_a("flax.linen", "Module")(model) and model.scope is None


_MODELS = (
    (_is_a("keras", "Layer"), _Keras),
    (_is_a("flax.nnx", "Module"), _Nnx),
    (_is_a("equinox", "Module"), _Equinox),
    (_is_torchax, _Torchax),
)
