"""The indexes of delayed messages on a simulated machine, which survive its processes."""

from __future__ import annotations

from forebay.storage.delays.index import DelayIndex
from forebay.storage.delays.index_in_memory import IndexInMemory


class SimDelayIndexes:
    """The delay indexes on one machine: they survive a process, and their synced state a power failure."""

    def __init__(self) -> None:
        self._indexes: dict[str, IndexInMemory] = {}
        self._kept: set[str] = set()

    def exists(self, directory: str) -> bool:
        return directory in self._indexes or directory in self._kept

    def keep(self, directory: str) -> None:
        self._kept.add(directory)

    def of(self, directory: str) -> DelayIndex:
        return self._indexes.setdefault(directory, IndexInMemory())

    def lose_power(self) -> None:
        self._indexes = {path: index for path, index in self._indexes.items() if index.lose_power()}

    def lose(self) -> None:
        """Lose the files of the indexes, but not the note that there were any."""
        self._indexes.clear()

    def erase(self) -> None:
        self.lose()
        self._kept.clear()
