"""The manifest of a partition for one term of its leader: read and claimed once, then changed.

Claiming gives it the leader's epoch, so that a leader which was replaced without noticing cannot write any
more. What it lists beyond the leader's own history is cut off, and never served (`core/tiers/lineage.py`).

All of this is done under the lock of the term. After every wait the term may be over (`TermOver`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from forebay.broker.partition.long_polls import release
from forebay.broker.tiers.manifests.manifest_file import ManifestFile
from forebay.broker.tiers.manifests.topic_description import TopicDescription
from forebay.core.tiers import manifest_changes as changes
from forebay.core.tiers.claiming import lacks_segments, lists_too_little, own_history
from forebay.errors import ForebayError
from forebay.tiers.object_store import ManifestChanged, ManifestError, ManifestLost, ObjectStoreError
from forebay.wire.tiers.manifest import REBUILT

if TYPE_CHECKING:
    from forebay.broker.partition.partition import Partition
    from forebay.broker.tiers.tier_host import TierHost
    from forebay.wire.tiers.manifest import Manifest

log = logging.getLogger(__name__)

T = TypeVar("T")

_ROUNDS_BETWEEN_LOOKS = 20
"""Of `remote.log.manager.task.interval.ms`, or of copies."""
_ROUNDS_WITHOUT_NEWS = 2
"""Of `remote.log.manager.task.interval.ms`. A replaced leader hears of its successor sooner."""
_TRIES_MAX = 5


class TermOver(ForebayError):
    """This broker does not lead the partition any more, or another leader has claimed the manifest."""


class TermManifest:
    def __init__(self, host: TierHost, partition: Partition, check_term: Callable[[], None]) -> None:
        """`check_term` raises TermOver if the term is over."""
        assert partition.remote is not None
        self._host = host
        self._partition = partition
        self._epoch = partition.leader_epoch
        self._remote = partition.remote
        self._check_term = check_term
        self._file = ManifestFile(
            host.store, host.known_store, host.threads, partition.topic_id, partition.index
        )
        self.description = TopicDescription(host, partition)
        self._rounds = 0
        self._fenced_since_s: float | None = None
        """When a later leader was seen to have claimed the manifest: this one has only to learn of it."""

    @property
    def is_lost(self) -> bool:
        """True if it is known to be missing, or not to be the one that counts."""
        return self._file.is_lost

    @property
    def fenced(self) -> bool:
        """True if a later leader has claimed the manifest."""
        return self._fenced_since_s is not None

    async def know(self) -> None:
        """Read and claim the manifest, unless that was done in this term."""
        if self._remote.known:
            return
        for _ in range(_TRIES_MAX):
            self._check_term()
            found = await self._read()
            self._check_term()
            if found is None:
                self._note_absence()
                self._adopt(None)
                return
            if found.leader_epoch > self._epoch:
                raise self._fenced_by(found)
            await self._check_whole(found)
            self._check_term()
            claimed = self.claimed(self._own_history(found))
            if await self._file.replace(claimed):
                self._check_term()
                self._adopt(claimed)
                return
        raise ObjectStoreError(f"the manifest of {self._partition} changes all the time")

    def _fenced_by(self, later: Manifest) -> TermOver | ManifestError:
        """The reason to leave the manifest alone. A leader that no news has replaced for long is told, since
        it will never copy: the other one is of another cluster, or of what this one was before."""
        now_s = self._host.clock.monotonic()
        since_s = self._fenced_since_s = now_s if self._fenced_since_s is None else self._fenced_since_s
        partition, config = self._partition, self._host.config
        if (now_s - since_s) * 1000 < _ROUNDS_WITHOUT_NEWS * config.task_interval_ms:
            return TermOver(f"{partition} has a leader of epoch {later.leader_epoch} already")
        return ManifestError(
            f"a leader of epoch {later.leader_epoch} has claimed the manifest of {partition}, and this one"
            f" has epoch {self._epoch}: it neither copies nor reads there. If the topic was restored to"
            " another cluster, do not use it here any more. If leader epochs went back, because the cluster's"
            " store was restored from an old backup: `forebay topic restore --new-offsets --as NEW` brings"
            " back what is in the object store, under another name"
        )

    async def _read(self) -> Manifest | None:
        return await self._described(self._file.read())

    async def _described(self, work: Awaitable[T]) -> T:
        """If the manifest is lost, so may be the description of the topic, by which it is made anew."""
        try:
            return await work
        except ManifestLost:
            self._check_term()
            with suppress(ObjectStoreError):  # that the manifest is lost says more
                await self.description.write_again()
            raise

    def _note_absence(self) -> None:
        known = self._remote.manifest
        if known is not None and known.segments:
            log.error(
                "all messages of a partition are gone from the object store, and its manifest",
                extra={"partition": str(self._partition), "offset": known.next_offset},
            )

    async def _check_whole(self, found: Manifest) -> None:
        partition, log_, known = self._partition, self._partition.log, self._remote.manifest
        known_end = known.next_offset if known is not None and known.segments else -1
        if found.writer == REBUILT or self._file.is_tried(found):
            known_end = -1  # what one made anew lacks, the log may have
        history = partition.epochs.entries, log_.start_offset, log_.end_offset
        if lacks_segments(found, *history, known_end=known_end) or (
            lists_too_little(found, *history) and await self._file.has_segments_beside(found)
        ):
            self._file.is_lost = True
            raise ManifestLost(
                f"the manifest of {partition} ends at offset {found.next_offset}, and the object store had "
                f"messages up to {max(known_end, log_.start_offset)}: it is an older one. Bring the last one "
                "back, or have it made anew with `forebay remote rebuild --force`, and with --accept-loss if "
                "there is nothing better"
            )

    def claimed(self, manifest: Manifest) -> Manifest:
        named = manifest._replace(topic=self._partition.topic)  # one made anew may have the topic's id
        return changes.claimed(named, self._epoch, self._host.writer, self._delete_at_ms())

    def _delete_at_ms(self) -> int:
        return self._host.time.trusted_ms() + self._host.config.delete_delay_ms

    def _own_history(self, manifest: Manifest) -> Manifest:
        """Without what is not of this leader's history, or was deleted in its term."""
        partition, log_ = self._partition, self._partition.log
        delete_at_ms = self._host.time.trusted_ms() + self._host.config.lost_history_retention_ms
        own = own_history(
            manifest, partition.epochs.entries, log_.start_offset, log_.end_offset, delete_at_ms
        )
        for loss, offset in own.losses:
            log.error(loss, extra={"partition": str(partition), "offset": offset})
        known = self._remote.manifest
        if known is not None and known.start_offset > own.manifest.start_offset:
            return changes.started_at(own.manifest, known.start_offset, self._delete_at_ms())
        return own.manifest

    async def look_again(self) -> None:
        """A partition at rest would not notice that its manifest is lost, or was made anew."""
        self._rounds += 1
        is_time = self.is_lost or self._rounds % _ROUNDS_BETWEEN_LOOKS == 0
        if is_time and self._remote.manifest is not None:
            await self.check_current()

    async def check_current(self) -> None:
        """Make sure that what is known is what counts in the object store now. Raises ObjectStoreError."""
        if not await self._described(self._file.is_current()):
            raise self._changed_by_others()
        self._check_term()

    async def store(self, manifest: Manifest) -> None:
        """Make a changed manifest the one that counts. On a conflict it is to be read again."""
        if not await self._described(self._file.replace(manifest)):
            raise self._changed_by_others()
        self._check_term()
        self._adopt(manifest)

    async def delete(self, keys: Collection[str]) -> None:
        """Delete objects that it has doomed, while it is the one that counts."""
        if not await self._described(self._file.delete(keys)):
            raise self._changed_by_others()
        self._check_term()

    def _changed_by_others(self) -> ManifestChanged:
        self._remote.known = False
        return ManifestChanged(f"somebody else has changed the manifest of {self._partition}")

    def _adopt(self, manifest: Manifest | None) -> None:
        was_known, self._fenced_since_s = self._remote.known, None
        self._remote.manifest, self._remote.known = manifest, True
        if not was_known:
            release(self._partition)  # readers of old messages have waited for it
