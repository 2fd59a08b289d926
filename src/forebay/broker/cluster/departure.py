"""Leaving in-sync sets: all of them at a stop, those of logs that lack data, those of logs that do not open.

A broker that stops lets others lead first (`hand_over`), and leaves the sets of what it follows after that.

What to write is decided in `core/cluster/replicas/controller.py`, on the present image. It is written until
the image needs no further change, because other brokers may change the same partitions at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container

from forebay.broker.live_config import LiveConfig
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import StoreError
from forebay.core.cluster.image_changes import Change, PartitionPut
from forebay.core.cluster.replicas.controller import departure, new_terms, withdrawal
from forebay.core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

_ATTEMPTS_MAX = 64
_RETRY_S = 0.01
_SLICE = 100
"""Leaderships that are handed over at a time."""
_LATE_S = 0.5
"""A watch that has not shown what was written for this time is late."""


class Departure:
    def __init__(self, metadata: Metadata, settings: LiveConfig, node_id: int) -> None:
        self._metadata = metadata
        self._settings = settings
        self._node_id = node_id

    async def withdraw(self, partitions: Container[TopicPartition]) -> bool:
        """Leave the in-sync sets of partitions that cannot be opened here, so that other replicas lead them.

        Returns whether that is done; if not, it has to be tried again.
        """
        minimum = self._settings.current.controller.min_insync_replicas
        try:
            await self._write_all(
                lambda: withdrawal(
                    self._metadata.image, self._node_id, partitions, min_insync_replicas=minimum
                )
            )
        except StoreError as error:
            log.warning("cannot leave the in-sync sets of damaged logs", extra={"reason": str(error)})
            return False
        return True

    async def step_down(
        self, partition: TopicPartition, *, unsynced: bool, damaged: bool, lost: bool
    ) -> bool:
        """Lead a partition no more before a new election, and leave its in-sync set as `depart` does.

        Returns whether that is done; if not, it has to be tried again. It is written once, and not until
        nothing is left to write: this broker may be elected again at once.
        """
        changes = departure(
            self._metadata.image,
            self._node_id,
            unsynced=unsynced,
            damaged=damaged,
            lost=lost,
            only={partition},
            min_insync_replicas=self._settings.current.controller.min_insync_replicas,
        )
        try:
            return not await self._metadata.change_all(changes)
        except StoreError as error:
            log.warning("cannot leave the in-sync set of a partition", extra={"reason": str(error)})
            return False

    async def hand_over(self) -> None:
        """Let others lead what this broker leads, and can be led by others. Raises StoreError.

        Every broker, and the clients, have work to do for each partition that gets another leader. So that no
        partition waits for the work of all the others, only a part of them moves at a time.
        """
        attempts = 0
        while changes := departure(
            self._metadata.image,
            self._node_id,
            only=self._led(),
            min_insync_replicas=self._settings.current.controller.min_insync_replicas,
        ):
            if not await self._write_and_know(changes[:_SLICE]):
                continue
            attempts += 1
            if attempts == _ATTEMPTS_MAX:
                raise StoreError("the cluster changes too fast to hand over what is led here")
            await asyncio.sleep(_RETRY_S)

    async def _write_and_know(self, changes: list[PartitionPut]) -> list[Change]:
        """Like `change_all`, but does not rely on the watch, which may be late.

        Until the image shows that others lead, this broker shows clients an end of the log that is outdated.
        """
        writing = asyncio.ensure_future(self._metadata.change_all(changes))
        try:
            written, _ = await asyncio.wait((writing,), timeout=_LATE_S)
            if not written:
                await self._metadata.catch_up()
            return await writing
        finally:
            writing.cancel()

    def _led(self) -> set[TopicPartition]:
        return {
            (topic.name, state.index)
            for topic in self._metadata.image.topics.values()
            for state in topic.partitions
            if state.leader == self._node_id
        }

    async def depart(
        self,
        *,
        unsynced: bool = False,
        damaged: bool = False,
        lost: bool = False,
        only: Container[TopicPartition] | None = None,
    ) -> None:
        """Leave the in-sync sets of all partitions, or of those in `only`. Raises StoreError.

        `unsynced`, `damaged`, `lost`: what this disk may lack, see `core/cluster/replicas/controller.py`.
        """
        await self._write_all(
            lambda: departure(
                self._metadata.image,
                self._node_id,
                unsynced=unsynced,
                damaged=damaged,
                lost=lost,
                only=only,
                min_insync_replicas=self._settings.current.controller.min_insync_replicas,
            )
        )

    async def begin_new_terms(self) -> None:
        """Lead on after a loss of power, where there is nobody else who could. Raises StoreError."""
        if await self._metadata.change_all(new_terms(self._metadata.image, self._node_id)):
            raise StoreError("the store changed while the leader epochs were raised; start again")

    async def _write_all(self, plan: Callable[[], list[PartitionPut]]) -> None:
        """Write what is planned, until there is nothing left to write."""
        for _ in range(_ATTEMPTS_MAX):
            changes = plan()
            if not changes:
                return
            failed = await self._metadata.change_all(changes)
            if failed:
                await asyncio.sleep(_RETRY_S)  # another broker was faster: the image will show its change
        raise StoreError("the cluster changes too fast to leave its in-sync sets; try again")
