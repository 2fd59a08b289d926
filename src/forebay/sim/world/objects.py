"""The object store of a simulated cluster: it fails, answers too late, and lists late; it forgets nothing.
(But somebody may delete a manifest.)

A request is carried out at one moment, in a thread of a process. What can go wrong: the store is away
(`away_until`), a single request fails before it does anything, or it does its work and the answer is lost.
Requests of copying threads may take long (`slow_s_max`): longer than an object that was given up is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random

from forebay.sim.world.virtual_time import World
from forebay.tiers.object_store import ABSENT, Conflict, Listed, Missing, ObjectStoreError, Stored

COPYING_THREADS = "forebay-tier"


class SimObjects:
    """Everything that was stored, for all brokers of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: Random = world.chance("objects")
        self.objects: dict[str, tuple[bytes, int, float]] = {}
        """Bytes, number of the version, and when it was written."""
        self._versions = 0
        self.away_until = 0.0
        self.failure_rate = 0.0
        """How many of the requests fail."""
        self.slow_s_max = 0.0
        self.lists_late_s = 0.0
        """How old the answer of a listing is."""
        self.hidden: dict[str, int] = {}
        """Manifests that somebody has deleted, and nobody has made anew yet, with their last offsets."""
        self.rebuilt: set[str] = set()
        """Those that were made anew: what they do not list has no owner."""
        self.on_change: Callable[[str], None] | None = None
        """Called with the key of every object that was written or deleted."""

    @property
    def url(self) -> str:
        return "sim://objects"

    def slow_s(self) -> float:
        """How long the next request of a copying thread takes."""
        return self._chance.uniform(0.0, self.slow_s_max) if self.slow_s_max else 0.0

    def get(self, key: str) -> Stored:
        self._enter()
        data, version, _ = self._find(key)
        return Stored(data, str(version))

    def get_range(self, key: str, position: int, length: int) -> bytes:
        self._enter()
        data = self._find(key)[0][position : position + length]
        if len(data) != length:
            raise ObjectStoreError(f"{key} is too short")
        return data

    def put(self, key: str, data: bytes, *, replaces: str | None = None) -> str:
        self._enter()
        found = self.objects.get(key)
        tag = ABSENT if found is None else str(found[1])
        if replaces is not None and replaces != tag:
            raise Conflict(f"{key} was changed by somebody else")
        version = self._write(key, data)
        self._lose_answer()
        return str(version)

    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        self._enter()
        self._write(key, b"".join(parts))
        self._lose_answer()

    def delete(self, key: str) -> None:
        self._enter()
        if self.objects.pop(key, None) is not None and self.on_change is not None:
            self.on_change(key)
        self._lose_answer()

    def list(self, prefix: str) -> Iterator[Listed]:
        self._enter()
        seen_to = self._world.now - self.lists_late_s
        for key, (data, _, written) in sorted(self.objects.items()):
            if key.startswith(prefix) and written <= seen_to:
                yield Listed(key, len(data), int(written * 1000))

    @contextmanager
    def calm(self) -> Iterator[None]:
        """While somebody uses it to whom nothing happens."""
        before = self.away_until, self.failure_rate, self.lists_late_s
        self.away_until = self.failure_rate = self.lists_late_s = 0.0
        try:
            yield
        finally:
            self.away_until, self.failure_rate, self.lists_late_s = before

    @contextmanager
    def listing_at_once(self) -> Iterator[None]:
        """While listings are not late."""
        before, self.lists_late_s = self.lists_late_s, 0.0
        try:
            yield
        finally:
            self.lists_late_s = before

    def _write(self, key: str, data: bytes) -> int:
        self._versions += 1
        self.objects[key] = (bytes(data), self._versions, self._world.now)
        if self.on_change is not None:
            self.on_change(key)
        return self._versions

    def _find(self, key: str) -> tuple[bytes, int, float]:
        try:
            return self.objects[key]
        except KeyError:
            raise Missing(f"there is no object {key}") from None

    def _enter(self) -> None:
        if self._world.now < self.away_until:
            raise ObjectStoreError("the object store is away")
        if self._chance.random() < self.failure_rate / 2:
            raise ObjectStoreError("the object store failed")

    def _lose_answer(self) -> None:
        if self._chance.random() < self.failure_rate / 2:
            raise ObjectStoreError("the answer of the object store came too late")
