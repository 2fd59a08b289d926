"""The model of deleted logs: of topics that were deleted, and of partitions that were reassigned or folded.

The model is told of every change of the real store, and of every directory that a broker renames to delete
it. At the end of a story no log is left that was set aside: brokers have found a reason to delete every
unused one. Only where the store was restored from a backup may some be left, and deletions and moves since
the backup do not count. So may logs that could not be read when their broker started.

A value that cannot be read says nothing, so the earlier knowledge stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import Random

from forebay.coordination.keys import Keys
from forebay.coordination.store import Event, EventKind, KeyValue
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.replicas.log_fate import UNREADABLE_EPOCHS
from forebay.core.cluster.stored import image_text
from forebay.errors import ProtocolError, StorageError
from forebay.sim.world.disks.disk_handle import DiskHandle
from forebay.sim.world.node import DATA_DIR, SimNode
from forebay.storage.checkpoint import read_partition_metadata
from forebay.storage.strays import PARTITION_NAME, SUFFIX, read_note

_DELETED_SUFFIX = "-delete"

_Log = tuple[bytes, int, int]
"""Topic id, partition and broker."""


class DeletedLogs:
    def __init__(self, keys: Keys, nodes: Sequence[SimNode], fail: Callable[[str], None]) -> None:
        self._keys = keys
        self._nodes = nodes
        self._fail = fail
        self._records: dict[str, TopicRecord] = {}
        self._ids: dict[str, set[bytes]] = {}
        """The ids of all topics that have had a name, by name."""
        self._deleted: set[bytes] = set()
        self._moved: set[_Log] = set()
        """Replicas that did not belong to a broker at some time."""
        self._gone: set[tuple[bytes, int]] = set()
        self._was_restored = False
        for node in nodes:
            node.disk.on_directory_renamed = lambda old, new, node=node: self._renamed(node, old, new)  # type: ignore[misc]

    # -- what is so --------------------------------------------------------------------------------------

    def changed(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind is EventKind.PUT:
                self._put(event.kv)
                continue
            match self._keys.split(event.kv.key):
                case ("topics", name) if name in self._records:
                    self._deleted.add(self._records.pop(name).topic_id)

    def restored(self, items: Iterable[KeyValue]) -> None:
        """Note that the store holds this backup from now on."""
        self._was_restored = True
        self._records, self._moved, self._gone = {}, set(), set()
        for item in items:
            self._put(item)
        self._deleted -= {record.topic_id for record in self._records.values()}

    def _put(self, item: KeyValue) -> None:
        with suppress(ProtocolError):
            match self._keys.split(item.key):
                case ("topics", name):
                    self._put_topic(image_text.decode_topic(name, item.value))
                case ("state", topic_id, index):
                    state = image_text.decode_partition(int(index), item.value, 1)
                    self._note_replicas(image_text.parse_topic_id(topic_id), state.index, state.replicas)

    def _put_topic(self, record: TopicRecord) -> None:
        before = self._records.get(record.name)
        self._records[record.name] = record
        self._ids.setdefault(record.name, set()).add(record.topic_id)
        count = 0 if before is None else len(before.assignment)
        self._gone |= {(record.topic_id, index) for index in range(len(record.assignment), count)}
        for index in range(count, len(record.assignment)):
            self._note_replicas(record.topic_id, index, record.assignment[index])

    def _note_replicas(self, topic_id: bytes, index: int, replicas: Sequence[int]) -> None:
        numbers = (node.node_id for node in self._nodes)
        self._moved |= {(topic_id, index, number) for number in numbers if number not in replicas}

    # -- what brokers do ---------------------------------------------------------------------------------

    def _renamed(self, node: SimNode, old: str, new: str) -> None:
        named = PARTITION_NAME.fullmatch(old.rpartition("/")[2])
        if named is None or not new.endswith(_DELETED_SUFFIX):
            return
        topic, index = named[1], int(named[2])
        ids = self._ids_of(node, old) or self._ids.get(topic, set())
        if not any(self._may_go(topic_id, index, node.node_id) for topic_id in ids):
            self._fail(f"{node.host} deletes {topic}-{index}, and nobody has deleted or moved it")

    def _may_go(self, topic_id: bytes, index: int, number: int) -> bool:
        gone = topic_id in self._deleted or (topic_id, index) in self._gone
        return gone or (topic_id, index, number) in self._moved

    @staticmethod
    def _ids_of(node: SimNode, directory: str) -> set[bytes]:
        """The topic id in a directory; none if it was lost with the power."""
        fault, node.disk.fault = node.disk.fault, None
        try:
            found = read_partition_metadata(DiskHandle(node.disk, Random(0)), directory).topic_id
        except StorageError:
            found = None
        finally:
            node.disk.fault = fault
        return set() if found is None else {found}

    def left_over(self) -> list[str]:
        """Logs that were set aside, and that nobody needs.

        A broker whose disk fails when it starts cannot tell which ones those are.
        """
        if self._was_restored:
            return []
        return [
            f"{node.host}{directory}"
            for node in self._nodes
            for directory in node.disk.directories(DATA_DIR)
            if directory.endswith(SUFFIX) and not _is_unreadable(node, directory)
        ]


def _is_unreadable(node: SimNode, directory: str) -> bool:
    note = read_note(DiskHandle(node.disk, Random(0)), directory)
    return note is not None and UNREADABLE_EPOCHS in note.reason
