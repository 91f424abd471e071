"""Facts of equal matches: what follows from the signature of a match alone, computed for the first of equal ones.

Networks repeat their layers, and loops and gradients repeat networks: thousands of matches have few signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

Facts = dict[Hashable, Any]
"""What is known of equal matches: by the function that computed it and its further arguments."""
Subject = TypeVar("Subject")
"""A match, or its fused anchor: it has `facts`."""
Arguments = ParamSpec("Arguments")
Fact = TypeVar("Fact")
_known: dict[Hashable, Facts] = {}
_MOST_SIGNATURES = 20_000


def facts_of(signature: Hashable) -> Facts:
    """The facts of all matches with this signature."""
    found = _known.get(signature)
    if found is None:
        if len(_known) >= _MOST_SIGNATURES:
            _known.clear()
        found = _known.setdefault(signature, {})
    return found


def once_for_equal_matches(
    function: Callable[Concatenate[Subject, Arguments], Fact],
) -> Callable[Concatenate[Subject, Arguments], Fact]:
    """The same function, computed once for equal matches; it reads nothing of them that is not in the signature.

    Further arguments are hashable and given by position.
    """

    @wraps(function)
    def once(match: Any, *arguments: Any) -> Any:
        facts: Facts = match.facts
        key = (function, *arguments) if arguments else function
        found = facts.get(key, facts)  # the facts themselves: there is none
        if found is facts:
            found = facts[key] = cast("Callable[..., Any]", function)(match, *arguments)
        return found

    return cast("Callable[Concatenate[Subject, Arguments], Fact]", once)
