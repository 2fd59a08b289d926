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
from collections.abc import Set
from importlib import import_module
from typing import TYPE_CHECKING

from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.config import BrokerConfig
    from forebay.core.cluster.image import ClusterImage

log = logging.getLogger(__name__)

_PACKAGES = ("forebay.wire", "forebay.core", "forebay.storage", "forebay.coordination", "forebay.broker")
ETCD = "forebay.coordination.etcd"
SQL = "forebay.core.views.sql"
KEYS = "forebay.broker.authentication.key_fetching"
CERTIFICATES = "forebay.broker.tls.subject"
RARE = (ETCD, SQL, KEYS, CERTIFICATES)
"""Modules that need large libraries: for clusters, views, OAUTHBEARER, and certificates of clients. They are
left out where they are not used when the broker becomes ready."""
AFTER_S = 1.0
"""How long after a broker is ready: clients that have waited for it come first."""
_PAUSE_S = 0.004


def used_libraries(config: BrokerConfig, image: ClusterImage) -> set[str]:
    """Those of RARE that this broker has a use for. A broker of a cluster has the client of etcd already."""
    uses = {SQL: image.views or image.fills, KEYS: config.oauth.jwks_url, CERTIFICATES: config.tls}
    return {name for name, used in uses.items() if used}


def warm_modules(used: Set[str] = frozenset()) -> list[str]:
    """The names of what is imported, in order; `used` of RARE too."""
    found = [
        each.name
        for package in _PACKAGES
        for each in load("pkgutil:walk_packages")(import_module(package).__path__, f"{package}.")
    ]
    left_out = tuple(name for name in RARE if name not in used)
    return [name for name in found if not name.startswith(left_out)]


class WarmUp:
    def __init__(self) -> None:
        self._used: Set[str] = frozenset()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forebay-warm-up", daemon=True)

    def start(self, used: Set[str] = frozenset()) -> None:
        """`used`: see `warm_modules`."""
        self._used = used
        self._thread.start()

    def stop(self) -> None:
        """Blocks until the module that is imported now is done."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for name in warm_modules(self._used):
                if name in sys.modules:
                    continue
                import_module(name)
                if self._stopped.wait(_PAUSE_S):
                    return
            gc.freeze()  # they live for as long as the broker
            log.info("all parts are loaded")
        except Exception:
            log.exception("a part of the broker could not be loaded: it fails when it is first used")
