"""Invariants of the brokers' background work, and of their logs after a restart.

- A process that ends loses nothing that it has written: its logs are as long when it is started again, and
  begin where they began, unless a new leader of an unclean election has them begin anew.
- An operation that a disk refuses is retried after a while, not at once. A reader may look for data around
  bytes that the disk does not return, so each position of a file counts separately.
- Retention and compaction continue whatever the state of other partitions, and finish.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from forebay.broker.node import Node
from forebay.broker.partition.partition import Partition
from forebay.core.topic_partition import TopicPartition
from forebay.sim.world.node import SimNode
from forebay.sim.world.virtual_time import World

_COMPACTIONS_PER_CHECK_MAX = 25
_REFUSALS_PER_CHECK_MAX = 25
_RETENTION_S_MAX = 8.0
_SLACK_BYTES = 4096


class Upkeep:
    def __init__(self, world: World, nodes: Sequence[SimNode], lasting: Container[TopicPartition]) -> None:
        """`lasting`: the partitions that lose nothing which was committed."""
        self._world = world
        self._lasting = lasting
        self._nodes = nodes
        self._seen: set[tuple[int, int]] = set()
        """Starts of nodes that were checked."""
        self._compactions: dict[tuple[int, int], int] = {}
        self._too_large_since: dict[tuple[int, str], float] = {}

    def check(self) -> None:
        for node in self._nodes:
            broker = node.broker
            if broker is None or not node.ready or node.paused or node.burdened:
                self._forgive(node)
                continue
            start = (node.node_id, node.starts)
            if start not in self._seen:
                self._seen.add(start)
                self._check_start(node, broker)
            self._check_compactions(start, node, broker)
            self._check_patience(node)
            for partition in broker.partitions.all():
                self._check_size(node, partition)

    def _forgive(self, node: SimNode) -> None:
        """Expect nothing of a broker that does not run, or has no time."""
        node.disk.refused.clear()
        self._too_large_since = {
            key: since for key, since in self._too_large_since.items() if key[0] != node.node_id
        }

    def _check_start(self, node: SimNode, broker: Node) -> None:
        for partition in broker.partitions.all():
            report, start = partition.log.report, partition.log.start_offset
            if node.kept_all and (report.truncated_bytes or report.removed_segments):
                self._world.fail(
                    f"{node.host} cut {report.truncated_bytes} bytes and {report.removed_segments} segments "
                    f"off {partition} when it started, though only its process had ended"
                )
            at = partition.topic, partition.index
            noted = node.noted_starts.get(at, 0)
            # After an unclean election, before it was looked at.
            begins_anew = len(self._nodes) > 1 and at not in self._lasting
            if start < noted and not begins_anew:
                self._world.fail(f"{partition} begins at {start} again on {node.host}, and began at {noted}")

    def _check_compactions(self, start: tuple[int, int], node: SimNode, broker: Node) -> None:
        count = broker.metrics.logs_compacted
        before = self._compactions.get(start, count)
        self._compactions[start] = count
        if count - before > _COMPACTIONS_PER_CHECK_MAX:
            self._world.fail(f"{node.host} compacts without an end: {count - before} times in a moment")

    def _check_patience(self, node: SimNode) -> None:
        refused = node.disk.refused.most_common(1)
        node.disk.refused.clear()
        for (operation, path, position), count in refused:
            if count > _REFUSALS_PER_CHECK_MAX:
                what = f"{path} at {position}" if operation == "read" else path
                self._world.fail(
                    f"{node.host} tries to {operation} {what} {count} times in a moment, in vain"
                )

    def _check_size(self, node: SimNode, partition: Partition) -> None:
        config, log, key = partition.config, partition.log, (node.node_id, str(partition))
        # While the settings of its topic could not be read, a segment may have grown larger than they allow.
        # (`log.segments()` would read indexes, which a disk may refuse.)
        segment_bytes = max([config.segment_bytes, *(segment.size for segment in log._segments)])
        limit = config.retention_bytes + 2 * segment_bytes + _SLACK_BYTES
        # The store may be away, and then nothing may be deleted.
        may_stay = (
            partition.remote is not None
            or config.retention_bytes < 0
            or not config.deletes
            or log.size <= limit
        )
        if may_stay or node.disk.fault is not None or partition.high_watermark < log.end_offset:
            self._too_large_since.pop(key, None)
        elif self._world.now - self._too_large_since.setdefault(key, self._world.now) > _RETENTION_S_MAX:
            self._world.fail(f"{partition} has {log.size} bytes on {node.host}, where {limit} should be left")

    # -- recovery ----------------------------------------------------------------------------------------

    def compacted(self) -> bool:
        """True if nothing is left to compact, except the newest segment of each log."""
        return not any(self._dirty())

    def _dirty(self) -> Iterator[Partition]:
        for node in self._nodes:
            if node.broker is not None:
                for partition in node.broker.partitions.all():
                    if partition.config.compacted and self._is_dirty(node.broker, partition):
                        yield partition

    def _is_dirty(self, broker: Node, partition: Partition) -> bool:
        segments = partition.log.segments()
        clean_to = broker.data.first_dirty_offset(partition.topic, partition.index)
        dirty = sum(segment.size for segment in segments[:-1] if segment.next_offset > clean_to)
        return dirty > partition.config.min_cleanable_dirty_ratio * partition.log.size
