"""The model of topics and their settings: what administrators asked for, and what must exist at the end.

A request that was not answered may still be carried out, even after one that was sent later. So a change
that was not confirmed stays possible until the end, beside the last one that was confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping

_Setting = tuple[str, str]


class Topics:
    def __init__(self) -> None:
        self.changes_count = 0
        """How many requests of administrators were confirmed."""
        self._partitions: dict[str, int] = {}
        """The minimum number of partitions of topics that were surely created."""
        self._uncertain: set[str] = set()
        self._deleted: set[str] = set()
        self._confirmed: dict[_Setting, str] = {}
        self._unconfirmed: dict[_Setting, set[str]] = {}

    # -- topics ------------------------------------------------------------------------------------------

    def made(self, name: str, partitions: int) -> None:
        self.changes_count += 1
        self._partitions[name] = partitions

    def shrinks(self, name: str, partitions: int) -> None:
        """Note that a topic gets fewer partitions, in the course of time."""
        self._partitions[name] = partitions

    def deleting(self, name: str) -> None:
        self._uncertain.add(name)

    def deleted(self, name: str) -> None:
        self.changes_count += 1
        self._deleted.add(name)

    def wrong_about(self, found: Mapping[str, int]) -> list[str]:
        """Differences between the topics that are there, with their numbers of partitions, and the model."""
        wrong = [f"{name} is there again" for name in sorted(self._deleted & set(found))]
        for name, count in self._partitions.items():
            if name not in self._uncertain and found.get(name, 0) < count:
                wrong.append(f"{name} has {found.get(name, 0)} partitions of {count}")
        return wrong

    # -- settings ----------------------------------------------------------------------------------------

    def may_have_set(self, topic: str, key: str, value: str) -> None:
        self._unconfirmed.setdefault((topic, key), set()).add(value)

    def set(self, topic: str, key: str, value: str) -> None:
        self.changes_count += 1
        self._confirmed[topic, key] = value

    def settings(self) -> dict[str, list[str]]:
        """The settings that were surely changed, by topic."""
        found: dict[str, list[str]] = {}
        for topic, key in self._confirmed:
            found.setdefault(topic, []).append(key)
        return found

    def may_be(self, topic: str, key: str, value: str) -> bool:
        possible = self._unconfirmed.get((topic, key), set())
        return value == self._confirmed[topic, key] or value in possible
