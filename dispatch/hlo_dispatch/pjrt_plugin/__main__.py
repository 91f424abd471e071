"""The rewriter's process: answers the plugin until the host ends."""

from __future__ import annotations

import os
import select
import sys
import threading

from hlo_dispatch.pjrt_plugin.channel import Channel


def _end_with_host(descriptor: int) -> None:
    """End this process, whatever it does, when the other end of the channel is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)  # hang-ups are always reported
    poll.poll()
    os._exit(0)


def main() -> None:
    """Answer one program after another."""
    channel = Channel.inherited()
    channel.say_hello()
    threading.Thread(target=_end_with_host, args=(channel.socket.fileno(),), daemon=True).start()
    try:
        from hlo_dispatch.pjrt_plugin.rewriter import answer
        from hlo_dispatch.pjrt_plugin.verification import Verification
        from hlo_dispatch.vendor import libraries
    except ImportError as error:
        # The plugin waits for an answer, and prints it.
        while channel.receive() is not None:
            channel.answer_failed(f"{sys.executable}, the rewriter's Python, lacks what hlo-dispatch needs: {error}")
        return
    libraries.leave_out("SciPy", "the host of the PJRT plugin has no SciPy")
    verification = Verification(sys.argv[1])
    while (request := channel.receive()) is not None:
        answer(channel, request, verification)


if __name__ == "__main__":
    main()
