"""The process of one worker: a broker that ends with its parent.

It gets its settings as one line on its standard input, with the numbers of the descriptors that it inherits,
and says with one line on its standard output that it is ready. The input stays open as long as the parent
lives, however that ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.process import run
from forebay.broker.system_ports import real_ports
from forebay.config import broker_config
from forebay.coordination.store import StoreError
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.broker.ports import Ports
    from forebay.config import BrokerConfig
    from forebay.coordination.store import Store

_SETTINGS_BYTES_MAX = 1 << 20
_ORPHAN_SECONDS_MAX = 30.0
"""A worker that has not ended for this long after its parent is ended."""


def main() -> int:
    given = json.loads(sys.stdin.buffer.readline(_SETTINGS_BYTES_MAX))
    inherited = _Inherited(given)
    try:
        config = broker_config(given["settings"])
        threading.Thread(target=_stop_with_parent, name="forebay-parent", daemon=True).start()
        return run(config, _say_ready, inherited.ports)
    except (ForebayError, OSError) as error:
        sys.stderr.write(f"forebay: worker {given['settings']['forebay.worker']}: {error}\n")
        return 1


class _Inherited:
    """The sockets that the parent has made."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._store: int | None = given["store"]
        self._shared: dict[str, int] = given["shared"]

    def ports(self, config: BrokerConfig) -> Ports:
        shared = {int(port): socket.socket(fileno=number) for port, number in self._shared.items()}
        network = SocketNetwork(shared)
        if config.cluster.url is not None:
            return real_ports(config, network)
        return real_ports(config, network, self._open_store)

    async def _open_store(self, _config: BrokerConfig) -> Store:
        from forebay.coordination.socket.client import SocketStore

        number, self._store = self._store, None
        if number is None:
            raise StoreError("the connection to the store in the parent process has ended")
        return await SocketStore.open(socket.socket(fileno=number))


def _say_ready(host: str, port: int) -> None:
    sys.stdout.write(f"{host}:{port}\n")
    sys.stdout.flush()


def _stop_with_parent() -> None:
    # Not through sys.stdin: its lock, held by this thread, would block the interpreter's exit.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHAN_SECONDS_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
