"""Values in the store that no broker can read, written by mistake or by a newer version.

The old value is put back later, if it is still missing then: while it cannot be read, nobody overwrites it. A
registration needs no repair, because its broker registers again. It is only deleted if its broker is dead.
"""

from __future__ import annotations

from forebay.coordination.keys import Keys
from forebay.sim.faults.scene import Fault, Scene, Undo
from forebay.sim.world.places import SURE
from forebay.sim.world.store import CLUSTER

_KEYS = Keys(CLUSTER)
_VALUES = (b"{}", b"", b"\xff\xfe", b'{"format":99}', b"[1]")
_STATES = (
    b'{"leader":-1,"leader_epoch":9,"isr":[],"replicas":[]}',
    b'{"leader":1,"leader_epoch":99999999999,"isr":[1],"replicas":[1]}',
)
"""States of partitions that no broker writes, and that look like some that it may."""
_KINDS = ("topics", "topics", "state", "state", "configs", "brokers")
_ANY_CHANCE = 0.3


class StoreValueFaults:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = scene.chance
        self._store = scene.store

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        """Faults of single plots."""
        return [(self._garble, 16)]

    def _garble(self) -> Undo | None:
        """Overwrite a value of some kind."""
        kind = self._chance.choice(_KINDS)
        keys = [key for key in self._stored(kind) if key not in self._store.garbled]
        if not keys:
            return None
        values = (*_VALUES, *_STATES) if kind == "state" else _VALUES
        key, value = self._chance.choice(keys), self._chance.choice(values)
        self._scene.note(f"{key} is written over with {value!r}")
        self._store.garble(key, value)
        return lambda: self._store.repair(key, put_back=kind != "brokers")

    def _stored(self, kind: str) -> list[str]:
        """The keys of a kind: for topics and partitions often those that are written to all the time."""
        items, _ = self._store.keyspace.range(f"{_KEYS.root}{kind}/")
        keys = [item.key for item in items]
        if kind not in ("topics", "state") or self._chance.random() < _ANY_CHANCE:
            return keys
        topics, image = {topic for topic, _ in SURE}, self._store.image()
        ids = [image.topics[topic].topic_id for topic in sorted(topics) if topic in image.topics]
        wanted = (*map(_KEYS.states, ids), *map(_KEYS.topic, sorted(topics)))
        return [key for key in keys if key.startswith(wanted)]
