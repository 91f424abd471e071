"""Process of one form of the decoder in one way, or of a peer, which measures on request (worker.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from hlo_dispatch.bench.generate.peers import PEERS, library
from hlo_dispatch.bench.generate.session import PROMPT, Session, first_tokens
from hlo_dispatch.bench.generate.weights import SIZES
from hlo_dispatch.bench.models.process import forget_peak, status
from hlo_dispatch.bench.worker import serve


def write(way: str, size: str, folder: str, **settings: Any) -> dict[str, Any]:
    """Write the file of the decoder that a session loads."""
    if way in PEERS:
        return {"file": str(library(way).write(SIZES[size], settings["precision"], Path(folder)))}
    from hlo_dispatch.bench.generate import in_jax

    return {"file": str(in_jax.write(Path(folder), way=way, size=size, **settings))}


def load(way: str, requests: list[dict[str, Any]], **settings: Any) -> tuple[Session, dict[str, Any]]:
    """A session, and what its first token takes: seconds, and bytes above those of its imports.

    Args:
        requests: what will be measured; each is called once, while the weights that a frozen function is compiled with
            are there.
        settings: of the session.
    """
    if way in PEERS:
        made: Callable[..., Session] = library(way).make
        import_module(next(iter(PEERS[way].packages)))
    else:
        from hlo_dispatch.bench.generate.in_jax import make as made

        settings["way"] = way
    before = forget_peak()
    session = made(requests=requests, **settings)
    begin = time.perf_counter()
    session.load()
    session.prefill(PROMPT)
    said: dict[str, Any] = {"imports": before, "first": time.perf_counter() - begin}
    said["first_peak"] = status("VmHWM") - before
    said["tokens"] = first_tokens(session)
    for request in requests:
        session.call(request)()
    session.forget_weights()
    return session, said | {"weights": session.weight_bytes}


def measure(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    """Times of calls, the memory that they take, or their time by kind of instruction."""
    call = session.call(request)
    if "profile" in request:
        from hlo_dispatch.bench.time_by_kind import time_by_kind

        return time_by_kind(call, runs=request["profile"], seconds=request["seconds"]).to_dict()
    call()
    if "memory" in request:
        session.keep(request)
        before = forget_peak()
        for _ in range(request["memory"]):
            call()
        return {"resident": before, "peak": status("VmHWM"), "cache": session.cache_bytes}
    samples: list[float] = []
    for _ in range(request["calls"]):
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return {"samples": samples}


def main() -> None:
    """Serve a parent."""
    sessions: list[Session] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "write" in request:
            return write(**cast("dict[str, Any]", request["write"]))
        if "load" in request:
            session, said = load(**cast("dict[str, Any]", request["load"]))
            sessions[:] = [session]
            return said
        return measure(sessions[0], request)

    serve(answer)


if __name__ == "__main__":
    main()
