"""The process of one worker: a broker that ends with its parent.

It gets its settings as one line on its standard input, with the numbers of the descriptors that it inherits,
and says with one line on its standard output that it is ready. The input stays open as long as the parent
lives, however that ends. It is forked (`fork_server.py`), or this module is run by an interpreter of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
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


def serve(descriptors: Mapping[int, int]) -> int:
    """The exit code. `descriptors`: those that have another number here than in the parent."""
    given = json.loads(_first_line())
    inherited = _Inherited(given, descriptors)
    try:
        config = broker_config(given["settings"])
        threading.Thread(target=_stop_with_parent, name="forebay-parent", daemon=True).start()
        return run(config, _say_ready, inherited.ports)
    except (ForebayError, OSError) as error:
        sys.stderr.write(f"forebay: worker {given['settings']['forebay.worker']}: {error}\n")
        return 1


class _Inherited:
    """The sockets that the parent has made."""

    def __init__(self, given: dict[str, Any], descriptors: Mapping[int, int]) -> None:
        store = given["store"]
        self._store: int | None = None if store is None else descriptors.get(store, store)
        self._shared = {
            int(port): descriptors.get(number, number) for port, number in given["shared"].items()
        }

    def ports(self, config: BrokerConfig) -> Ports:
        shared = {port: socket.socket(fileno=number) for port, number in self._shared.items()}
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


# Not through sys.stdin and sys.stdout: those of a forked process are what its parent had, which may be none.


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _SETTINGS_BYTES_MAX and (piece := os.read(0, 1 << 16)):
        line += piece
    return line


def _say_ready(host: str, port: int) -> None:
    os.write(1, f"{host}:{port}\n".encode())


def _stop_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHAN_SECONDS_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(serve({}))
