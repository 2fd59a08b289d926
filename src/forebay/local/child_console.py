"""The console as a child process, for `forebay serve --console` and `forebay cluster start --console`.

It ends with its parent: the parent holds the other end of its standard input, which closes in any case.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

_STOP_SECONDS = 5.0
MODULE = "forebay.console.child"
"""By name: nothing of the console is imported here."""


class ChildConsole:
    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, client: Mapping[str, str], *, port: int, on_line: Callable[[str], None]) -> None:
        """Returns at once. `client`: librdkafka's settings, with the address of the brokers.

        `on_line` gets what the console says: its address, or why it cannot start.
        """
        settings = {"client": dict(client), "port": port}
        self._child = child = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # a Ctrl-C at the terminal is for the parent, which then ends it
        )
        assert child.stdin is not None
        child.stdin.write(json.dumps(settings).encode() + b"\n")
        child.stdin.flush()
        threading.Thread(target=_tell, args=(child, on_line), name="console-lines", daemon=True).start()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _tell(child: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> None:
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            on_line(line.decode(errors="replace").rstrip())
