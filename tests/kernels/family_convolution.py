"""Attribute fuzzer, direct convolutions: valid calls. The formula is that of oneDNN's (onednn_meaning.py)."""

from __future__ import annotations

from typing import Any

from wire_calls import Array, WireCall, channels_last, own, tensors

_PLAIN = {"strides": 1, "dilations": 0, "padding_low": 0, "padding_high": 0}


def _call(dtype: str, shapes: tuple[list[int], list[int], list[int]], *, last: bool = False, **window: Any) -> WireCall:
    """Source, weights and result; `last`: source and result have their channels last."""
    source, weights, result = shapes
    attributes = tensors(src=(dtype, source), weights=(dtype, weights), dst=(dtype, result))
    if last:
        attributes |= {"src_strides": channels_last(source), "dst_strides": channels_last(result)}
    for name, usual in _PLAIN.items():
        attributes[name] = window.pop(name, [usual] * (len(source) - 2))
    operands = [Array(dtype, [_product(dims)]) for dims in (source, weights)]
    return own("convolution", attributes | window, operands, Array(dtype, [_product(result)]))


def _product(dims: list[int]) -> int:
    product = 1
    for size in dims:
        product *= size
    return product


def valid_calls() -> list[WireCall]:
    """One to three dimensions, strides, gaps, groups, both orders of channels; few channels of large windows."""
    return [
        _call("f64", ([1, 1, 1], [1, 1, 1], [1, 1, 1])),
        _call("f64", ([1, 2, 1, 1], [2, 1, 1, 3, 3], [1, 2, 1, 1]), last=True, padding_low=[1, 1], padding_high=[1, 1]),
        _call("f64", ([2, 3, 9], [5, 3, 4], [2, 5, 7]), padding_low=[1]),
        _call("f64", ([1, 1, 20, 19], [1, 1, 7, 5], [1, 1, 20, 19]), padding_low=[3, 2], padding_high=[3, 2]),
        _call("f64", ([1, 1, 20, 19], [2, 1, 9, 5], [1, 2, 6, 8]), strides=[2, 2], weights_reversed=1),
        _call("f64", ([2, 6, 9, 8], [2, 4, 3, 3, 2], [2, 8, 7, 4]), last=True, strides=[1, 2]),
        _call("f64", ([1, 2, 5, 6, 7], [4, 2, 2, 3, 3], [1, 4, 4, 2, 3]), strides=[1, 1, 2], dilations=[0, 1, 0]),
        _call("f64", ([2, 9, 5, 6], [9, 1, 1, 3, 3], [2, 9, 5, 6]), last=True, padding_low=[1, 1], padding_high=[1, 1]),
        _call("f32", ([2, 18, 40], [18, 1, 1, 5], [2, 18, 32]), last=True, dilations=[3], padding_low=[8]),
        _call("f32", ([1, 3, 13, 70], [3, 1, 1, 3, 3], [1, 3, 13, 70]), padding_low=[1, 1], padding_high=[1, 1]),
    ]  # fmt: skip
