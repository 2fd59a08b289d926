"""Invariants of tiered storage, checked against what is really in the object store.

- A manifest is whole, and every object that it lists is there, with the size that it says.
- One that somebody has deleted is not begun anew by a leader: what it listed would be given up.
- What is gone from a broker's disk is in the object store. (Not in topics whose messages are deleted, or may
  be lost.)
- A manifest lists nothing of a lost history: its messages are those of the leader that wrote it, epoch by
  epoch, and end where the leader's log does, or before.
- What a leader knows of its manifest fits its log: nothing is missing between the two, and nothing counts as
  deleted that is still to be written.
- In the end every object has an owner: a manifest lists it, or is about to delete it. (Not where a
  manifest was made anew, which lists only what counts.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forebay.broker.partition.partition import Partition
from forebay.errors import ProtocolError
from forebay.sim.world.node import SimNode
from forebay.sim.world.objects import SimObjects
from forebay.sim.world.places import BRIEF, LOOSE
from forebay.sim.world.virtual_time import World
from forebay.wire.tiers.layout import MANIFEST, SEGMENT_SUFFIX, manifest_key
from forebay.wire.tiers.manifest import Manifest, decode_manifest

_DELETED = (BRIEF, LOOSE)


class TierInvariants:
    def __init__(self, world: World, nodes: Sequence[SimNode], objects: SimObjects) -> None:
        self._world = world
        self._nodes = nodes
        self._objects = objects
        self._changed: set[str] = set()
        objects.on_change = self._changed.add

    def check(self) -> None:
        for key in sorted(self._changed):
            if key.endswith(MANIFEST) and key in self._objects.objects:
                self._check_manifest(key)
        self._changed.clear()
        for node in self._nodes:
            if node.broker is not None and node.ready:
                self._check_logs(node)

    def _check_manifest(self, key: str) -> None:
        if key in self._objects.hidden:
            self._world.fail(f"{key} was deleted by somebody, and a leader has begun it anew")
        manifest = self._manifest(key)
        for segment in () if manifest is None else manifest.segments:
            found = self._objects.objects.get(segment.key)
            if found is None or len(found[0]) != segment.object_bytes:
                self._world.fail(f"{key} lists {segment.key}, which is not there")
        if manifest is not None:
            self._check_history(manifest)

    def _check_history(self, manifest: Manifest) -> None:
        for node in self._nodes:
            for partition in () if node.broker is None else node.broker.partitions.all():
                is_of = (partition.topic_id, partition.index) == (manifest.topic_id, manifest.partition)
                if is_of and partition.is_leader and partition.leader_epoch == manifest.leader_epoch:
                    self._compare(manifest, partition)

    def _compare(self, manifest: Manifest, partition: Partition) -> None:
        log = partition.log
        if manifest.segments and manifest.next_offset > log.end_offset:
            self._world.fail(
                f"{partition} ends at {log.end_offset}, and the object store at {manifest.next_offset}"
            )
        for segment in manifest.segments:
            for epoch, start in segment.epochs:
                offset = max(start, segment.base_offset, log.start_offset)
                if offset < segment.next_offset and partition.epochs.epoch_at(offset) < epoch:
                    self._world.fail(f"{segment.key} has offset {offset} of {partition} in epoch {epoch}")

    def _check_logs(self, node: SimNode) -> None:
        assert node.broker is not None
        for partition in node.broker.partitions.all():
            self._check_fit(partition)
            start = partition.log.start_offset
            if partition.remote is None or not start or (partition.topic, partition.index) in _DELETED:
                continue
            if partition.config.unclean_leader_election_enable:
                continue  # a replica may still have a lost history, of which the store has let go
            key = manifest_key(partition.topic_id, partition.index)
            manifest = self._manifest(key)
            held = -1 if manifest is None else manifest.next_offset
            held = self._objects.hidden.get(key, held)
            if held < start:
                self._world.fail(
                    f"{partition} begins at {start} on {node.host}, and the object store ends at {held}"
                )

    def _check_fit(self, partition: Partition) -> None:
        remote, log = partition.remote, partition.log
        if remote is None or not partition.is_leader or not remote.known or remote.manifest is None:
            return
        if log.start_offset > remote.manifest.next_offset:
            self._world.fail(
                f"{partition} begins at {log.start_offset}, and its manifest ends at {remote.copied_to}"
            )
        if remote.manifest.start_offset > log.end_offset:
            self._world.fail(
                f"{partition} ends at {log.end_offset}, and its manifest begins at"
                f" {remote.manifest.start_offset}"
            )

    def _manifest(self, key: str) -> Manifest | None:
        found = self._objects.objects.get(key)
        if found is None:
            return None
        try:
            return decode_manifest(found[0])
        except ProtocolError as error:
            self._world.fail(f"{key}: {error}")
            return None

    # -- in the end --------------------------------------------------------------------------------------

    def orphans(self) -> list[str]:
        """Objects that no manifest knows."""
        owned = set(self._owned())
        known = {key.rpartition("/")[0] for key in self._objects.rebuilt}
        return sorted(
            key
            for key in self._objects.objects
            if key.endswith(SEGMENT_SUFFIX) and key not in owned and key.rpartition("/")[0] not in known
        )

    def _owned(self) -> Iterator[str]:
        for key in self._objects.objects:
            manifest = self._manifest(key) if key.endswith(MANIFEST) else None
            if manifest is not None:
                yield from (segment.key for segment in manifest.segments)
                yield from manifest.pending
                yield from (doomed.key for doomed in manifest.doomed)

    @property
    def segments(self) -> int:
        """How many segments are in the object store."""
        return sum(key.endswith(SEGMENT_SUFFIX) for key in self._objects.objects)
