"""Importing what a broker has not needed yet, while it serves.

A broker is ready before most of its modules are imported. The others are imported now, so that the first
request of a kind does not wait for a disk, and so that a running broker has all of its code in memory: the
package may be replaced on disk by another version at any time (docs/decisions/0048-start-light.md).

A thread does it, module by module, the lower layers first, with a pause after each: the loop never waits for
it longer than for any other thread.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from importlib import import_module
from pkgutil import walk_packages

log = logging.getLogger(__name__)

_PACKAGES = ("forebay.wire", "forebay.core", "forebay.storage", "forebay.coordination", "forebay.broker")
RARE = (
    "forebay.coordination.etcd",
    "forebay.core.views.sql",
    "forebay.broker.authentication.key_fetching",
    "forebay.broker.tls.subject",
)
"""What takes large libraries of others: etcd, the SQL of views, keys for OAUTHBEARER, and the names in the
certificates of clients. It is imported when it is used."""
_PAUSE_S = 0.004


def warm_modules() -> list[str]:
    """The names of what is imported, in order."""
    found = [
        each.name
        for package in _PACKAGES
        for each in walk_packages(import_module(package).__path__, f"{package}.")
    ]
    return [name for name in found if not name.startswith(RARE)]


class WarmUp:
    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forebay-warm-up", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until the module that is imported now is done."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for name in warm_modules():
                if name in sys.modules:
                    continue
                import_module(name)
                if self._stopped.wait(_PAUSE_S):
                    return
            gc.freeze()  # they live for as long as the broker
            log.info("all parts are loaded")
        except Exception:
            log.exception("a part of the broker could not be loaded: it fails when it is first used")
