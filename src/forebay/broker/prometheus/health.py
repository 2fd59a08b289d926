"""The health of a broker: does it serve clients, and if not, why?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.broker.cluster.held_lease import HeldLease
    from forebay.coordination.metadata import Metadata

_STARTING, _SERVING, _STOPPING = 1, 3, 6
"""Kafka's numbers of a broker's states."""


class Health:
    def __init__(self, lease: HeldLease, metadata: Metadata, *, is_serving: Callable[[], bool]) -> None:
        """`is_serving`: whether connections of clients are accepted."""
        self._lease = lease
        self._metadata = metadata
        self._is_serving = is_serving
        self._is_stopping = False

    def stop(self) -> None:
        """The broker begins to hand over, and to leave the cluster."""
        self._is_stopping = True

    @property
    def state(self) -> int:
        if self._is_stopping:
            return _STOPPING
        return _SERVING if self._is_serving() else _STARTING

    def problem(self) -> str | None:
        """Why no client should be sent here; None if the broker serves."""
        if self._is_stopping:
            return "the broker is stopping: its partitions are handed over to others"
        refused = self._metadata.refused
        if refused is not None:
            return f"what answers is not the cluster's store ({refused.reason.value}); the log says more"
        if not self._is_serving():
            return "the broker is starting: it has not joined the cluster yet"
        return self._lease_problem()

    def _lease_problem(self) -> str | None:
        lease = self._lease
        if lease.valid():
            return None
        if lease.current is None:
            return "fenced: the broker has no lease in the store, and takes a new one"
        if not lease.current.valid():
            return (
                "the lease in the store is not renewed: the store cannot be reached, or the broker was asleep"
            )
        return "fenced: the broker has registered, and does not know yet what was elected meanwhile"
