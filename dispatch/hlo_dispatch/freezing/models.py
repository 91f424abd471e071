"""Model adapters of `freeze`'s arguments: functions, and models of frameworks.

No framework is imported that the user did not import: its models could not exist.
"""

# pyright: basic
# frameworks have no complete type hints.
from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Any

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.hf_flax_models import HfFlaxModel
from hlo_dispatch.freezing.keras_models import KerasLanguageModel, KerasModel
from hlo_dispatch.freezing.model_adapter import FrameworkModel, ModelAdapter
from hlo_dispatch.freezing.purity_check import unchanging


def adapter_for(model: Any, frozen: tuple[Any, ...]) -> ModelAdapter:
    """Create the adapter of `freeze`'s arguments.

    Raises:
        FreezeError: they cannot be frozen.
    """
    if not frozen:
        for is_one, adapter in _MODELS:
            if is_one(model):
                return adapter(model)
    _refuse_generate(model)
    if not callable(model) or _is_unbound_linen(model):
        hint = "its apply and the variables: freeze(model.apply, variables)" if _is_unbound_linen(model) else ""
        hint = hint or "a function, or a model of Keras, flax.nnx, Equinox, Transformers (Flax) or torchax"
        raise FreezeError(f"a {type(model).__name__} alone cannot be frozen: freeze takes {hint}")
    return ModelAdapter(model, takes_frozen=bool(frozen))


class _Nnx(FrameworkModel):
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


class _Equinox(FrameworkModel):
    def weights(self, model: Any) -> Any:
        return sys.modules["equinox"].nn.inference_mode(model)

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return weights(*args, **kwargs)

    def rebind(self, model: Any) -> None:
        """An Equinox model is a pytree: nothing else is needed."""


class _Torchax(FrameworkModel):
    def weights(self, model: Any) -> Any:
        return sys.modules["torchax"].extract_jax(model)[0]

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _inferring(self.model) as model:
            return sys.modules["torchax"].extract_jax(model)[1](weights, args, kwargs)


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


def _refuse_generate(method: Any) -> None:
    """Refuse a model's `generate`, which reads text or options, and is no function of arrays.

    Raises:
        FreezeError: it is one.
    """
    owner = getattr(method, "__self__", None)
    if getattr(method, "__name__", "") == "generate" and any(is_one(owner) for is_one in _LANGUAGE_MODELS):
        raise FreezeError(
            f"generate of a {type(owner).__name__} is no function of arrays alone: freeze the model, and call that, "
            "freeze(model).generate(...)"
        )


_LANGUAGE_MODELS = {
    _is_a("keras_hub.models", "CausalLM"): KerasLanguageModel,
    _is_a("transformers.modeling_flax_utils", "FlaxPreTrainedModel"): HfFlaxModel,
}
_MODELS = (
    *_LANGUAGE_MODELS.items(),
    (_is_a("keras", "Layer"), KerasModel),
    (_is_a("flax.nnx", "Module"), _Nnx),
    (_is_a("equinox", "Module"), _Equinox),
    (_is_torchax, _Torchax),
)
