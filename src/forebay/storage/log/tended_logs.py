"""Logs that need work which no request asks for.

A log is noted here when the need arises. So upkeep costs nothing while there is nothing to do, however many
logs there are. Any thread may add a log; the loop looks at them and takes out those that need nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Tended(Protocol):
    """A log, as far as its upkeep is concerned."""

    offline: str | None

    @property
    def offline_for_good(self) -> bool: ...
    @property
    def has_deleted(self) -> bool: ...
    @property
    def is_reap_due(self) -> bool: ...


class TendedLogs:
    __slots__ = ("deleted", "offline", "on_due")

    def __init__(self) -> None:
        self.offline: set[Tended] = set()
        """Logs that could not be written, and may come back."""
        self.deleted: set[Tended] = set()
        """Logs with deleted segments whose files are still on the disk."""
        self.on_due: Callable[[], None] = lambda: None
        """Called on the loop when a segment was deleted whose files need not wait."""

    def forget_those_in_order(self) -> None:
        for log in list(self.offline):
            if log.offline is None or log.offline_for_good:
                self.offline.discard(log)
        for log in list(self.deleted):
            if not log.has_deleted:
                self.deleted.discard(log)
