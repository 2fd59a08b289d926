"""The child process of `forebay.local.child_broker`: a broker that ends with its parent."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from forebay.broker.process import run
from forebay.config import broker_config
from forebay.errors import ForebayError

_SETTINGS_BYTES_MAX = 1 << 20


def main() -> int:
    settings = json.loads(sys.stdin.buffer.readline(_SETTINGS_BYTES_MAX))
    try:
        config = broker_config(settings)
        threading.Thread(target=_stop_with_parent, name="forebay-parent", daemon=True).start()
        return run(config, _say_ready)
    except (ForebayError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _say_ready(host: str, port: int) -> None:
    sys.stdout.write(f"{host}:{port}\n")
    sys.stdout.flush()


def _stop_with_parent() -> None:
    # Not through sys.stdin: its lock, held by this thread, would block the interpreter's exit.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
