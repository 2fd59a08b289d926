"""Tiered storage of a broker: a `LeaderTerm` for each tiered partition that it leads, tended in turn.

Every partition is looked at at intervals, and soon after a segment was closed. A store that fails is asked
again after a pause that grows with each failure, for all partitions together: one that is away is not asked
a thousand times. (A manifest that is missing is a matter of its partition: it is looked for in each round.)
Nothing here is in the way of producing or of reading the local log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from forebay.broker.tiers.leader_term import LeaderTerm
from forebay.broker.tiers.manifests.term_manifest import TermOver
from forebay.broker.yielding.pace import Stopped
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.tiers.object_store import ManifestChanged, ManifestError, ObjectStoreError

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.partition.partition import Partition
    from forebay.broker.tiers.tier_host import TierHost
    from forebay.broker.tiers.topic_removal import TopicRemoval

log = logging.getLogger(__name__)

_SOON_S = 0.05
_LOCAL_LOOK_S = 0.25
"""How often to look at local logs while some have segments that are not yet to be copied or deleted."""


class TierService:
    def __init__(
        self,
        host: TierHost,
        background: Background,
        loop: asyncio.AbstractEventLoop,
        removal: TopicRemoval,
        *,
        led: Callable[[], Iterable[Partition]],
    ) -> None:
        """`led`: the partitions that this broker leads."""
        self._removal = removal
        self._host = host
        self._background = background
        self._loop = loop
        self._led = led
        self._terms: dict[Partition, LeaderTerm] = {}
        self._due: dict[Partition, None] = {}
        """Partitions to look at soon."""
        self._busy: set[Partition] = set()
        self._deleting: set[Partition] = set()
        """Those of which local segments are being deleted."""
        self._woken = asyncio.Event()
        self._failures = 0
        """How often the store has failed since it last worked."""
        self._wait_until = 0.0
        self._removing = False
        self._waits_for_logs = False
        """True if a local log may have another segment to copy or to delete before the next round."""
        self._closed = False

    # -- what others tell ------------------------------------------------------------------------------

    def look_at(self, partition: Partition) -> None:
        """Something may be to do for a partition: it is led here now, or has closed a segment."""
        if partition.remote is not None and partition.is_leader and not self._closed:
            partition.remote.on_segment_closed = self.look_at
            self._due[partition] = None
            self._woken.set()

    def dropped(self, partition: Partition) -> None:
        self._end_term(partition)
        self._due.pop(partition, None)

    async def begin_at(self, partition: Partition, offset: int) -> None:
        """Delete messages below an offset, as far as they are in the object store. Raises KafkaError."""
        try:
            await self._term(partition).begin_at(offset)
        except TermOver:
            raise partition.not_leader() from None
        except ObjectStoreError as error:
            self._failed(partition, error)
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the object store cannot be written: {error}"
            ) from None

    # -- running ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tend partitions for as long as the broker serves."""
        next_round = next_look = 0.0
        while True:
            now = self._loop.time()
            if now >= next_round:
                next_round = now + self._host.config.task_interval_ms / 1000
                self._due.update(dict.fromkeys(p for p in self._led() if p.remote is not None))
                self._background.spawn(self._remove_topics(), "removing the objects of deleted topics")
            if now >= next_look:
                next_look = now + _LOCAL_LOOK_S
                self._look_at_local_logs()
            self._begin_some()
            for partition in tuple(self._busy):
                self._delete_copied(partition)
            self._woken.clear()
            delay_s = next_round - self._loop.time()
            if self._waits_for_logs:
                delay_s = min(delay_s, next_look - self._loop.time())
            if self._due:
                delay_s = min(delay_s, max(self._wait_until - self._loop.time(), _SOON_S))
            timer = self._loop.call_later(max(delay_s, _SOON_S), self._woken.set)
            await self._woken.wait()
            timer.cancel()

    async def _remove_topics(self) -> None:
        if self._removing or self._loop.time() < self._wait_until:
            return
        self._removing = True
        try:
            await self._host.known_store.check()
            await self._removal.remove_some()
        except ObjectStoreError as error:
            if self._closed:
                return
            self._pause()
            log.warning("the objects of deleted topics stay for now", extra={"reason": str(error)})
        finally:
            self._removing = False

    def _forget_terms(self) -> None:
        for partition in [p for p, term in self._terms.items() if term.is_over]:
            self._end_term(partition)

    def _end_term(self, partition: Partition) -> None:
        term = self._terms.pop(partition, None)
        if term is not None:
            term.give_up()

    def _look_at_local_logs(self) -> None:
        """A closed segment is copied as soon as it is flushed and committed, and one that was copied leaves
        the local disk as this grows."""
        self._forget_terms()
        self._waits_for_logs = False
        for partition, term in tuple(self._terms.items()):
            if term.can_copy:
                self._due[partition] = None
            if term.is_local_too_large:
                self._delete_copied(partition)
            self._waits_for_logs = self._waits_for_logs or term.waits_for_log

    def _delete_copied(self, partition: Partition) -> None:
        """Also while the next upload takes long."""
        term = self._terms.get(partition)
        if (
            term is None
            or term.is_over
            or partition in self._deleting
            or self._loop.time() < self._wait_until
        ):
            return
        if term.has_local_to_delete:
            self._deleting.add(partition)
            self._background.spawn(self._delete_of(partition, term), "deleting segments that are copied")

    async def _delete_of(self, partition: Partition, term: LeaderTerm) -> None:
        try:
            await term.delete_copied()
        except TermOver:
            pass
        except (ObjectStoreError, StorageError, OSError) as error:
            self._failed(partition, error)
        finally:
            self._deleting.discard(partition)

    def _begin_some(self) -> None:
        while self._due and len(self._busy) < self._host.config.copy_threads:
            if self._loop.time() < self._wait_until:
                return
            partition = next((each for each in self._due if each not in self._busy), None)
            if partition is None:
                return
            del self._due[partition]
            if partition.closed or not partition.is_leader or partition.remote is None:
                continue
            self._busy.add(partition)
            self._background.spawn(self._tend(partition), "copying segments to the object store")

    async def _tend(self, partition: Partition) -> None:
        more = False
        try:
            more = await self._term(partition).tend()
            self._failures = 0
            if partition.remote is not None:
                partition.remote.failure = None
        except (TermOver, Stopped):
            pass
        except (ObjectStoreError, StorageError, OSError) as error:
            self._failed(partition, error)
        finally:
            self._busy.discard(partition)
            self._waits_for_logs = True  # unless the next look finds nothing
            if more:
                self._due[partition] = None
            self._woken.set()

    def _failed(self, partition: Partition, error: Exception) -> None:
        if self._closed:
            return  # it was given up: the next leader finds it pending
        self._host.metrics.remote_failures += 1
        if partition.remote is not None:
            partition.remote.failure = str(error)
        if isinstance(error, ManifestChanged):
            self._loop.call_later(self._host.config.retry_ms / 1000, self.look_at, partition)
        elif isinstance(error, ObjectStoreError) and not isinstance(error, ManifestError):
            self._pause()
            self._due[partition] = None
        log.warning(
            "tiered storage: will be tried again",
            extra={"partition": str(partition), "reason": str(error)},
        )

    def _pause(self) -> None:
        config = self._host.config
        pause_ms = min(config.retry_ms * 2 ** min(self._failures, 20), config.retry_max_ms)
        self._failures += 1
        self._wait_until = self._loop.time() + pause_ms / 1000

    def _term(self, partition: Partition) -> LeaderTerm:
        term = self._terms.get(partition)
        if term is None or term.epoch != partition.leader_epoch:
            if not partition.is_leader or partition.remote is None or self._closed:
                raise TermOver(f"this broker does not lead {partition}")
            self._end_term(partition)
            term = self._terms[partition] = LeaderTerm(self._host, partition)
        return term

    # -- ending ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Begin nothing any more, and end what is under way."""
        self._closed = True
        for pace in self._host.paces:
            pace.stopped = True
