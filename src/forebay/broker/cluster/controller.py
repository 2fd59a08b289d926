"""The controller: the broker that is elected to act when brokers come and go, and when replicas move.

What to do is decided in `core/cluster/replicas/controller.py`; here it is done. Every image is looked at
once, by one plan at a time, and each write is guarded by the election itself: a controller that was replaced
without noticing writes nothing more. The election hangs on the broker's own lease, so it ends when the broker
is given up; then another broker wins, looks at everything anew, and goes on where this one stopped.
"""

from __future__ import annotations

import asyncio
import logging

from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.live_config import LiveConfig
from forebay.coordination.controller_election import campaign
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Compare, Delete, Lease, Store, StoreClosed, StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, PartitionPut
from forebay.core.cluster.replicas.controller import plan, prefer
from forebay.core.cluster.replicas.internal_topics import Widening
from forebay.core.cluster.replicas.restored_partitions import settle_unsettled

log = logging.getLogger(__name__)

NOT_ELECTED = -1
_RETRY_S = 0.2
_RESIGN_S = 1.0
_JOIN_S_MAX = 10.0
_OVERTAKEN_S = 0.02
"""Before a plan is made again because another writer was faster. A broker that died may be waiting for it."""


class Controller:
    def __init__(
        self,
        *,
        node_id: int,
        settings: LiveConfig,
        metadata: Metadata,
        store: Store,
        lease: HeldLease,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._store = store
        self._lease = lease
        self._loop = loop
        self._wake = asyncio.Event()
        self._preferred_s = 0.0
        """When leaders were last evened out, in the event loop's time."""
        self._trouble = ""
        self._awaited: dict[int, int] = {}
        self._plans_all = False
        """Since elections could not be written, which are planned alone otherwise."""
        self.epoch = NOT_ELECTED
        """The create revision of the controller's key while it is this broker's."""

    @property
    def active(self) -> bool:
        return self.epoch != NOT_ELECTED

    async def run(self) -> None:
        """Be elected, act, be replaced, and again; until cancelled, or the store is closed."""
        await self._let_workers_join()
        while True:
            lease = self._lease.current
            if lease is None or not lease.valid():
                # The broker is about to take another.
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                await self._serve(lease)
            except StoreClosed:
                raise
            except StoreError as error:
                self._complain(error)
                await asyncio.sleep(_RETRY_S)

    async def _let_workers_join(self) -> None:
        """The workers of a host start together. The first of them would elect nobody for the partitions of
        those that are not there yet, and the same leaders again a moment later."""
        config = self._settings.current
        if config.cluster.url is not None or not config.workers.number:
            return
        try:
            async with asyncio.timeout(_JOIN_S_MAX):
                while len(self._metadata.image.brokers) < config.workers.count:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            log.warning("not all workers of this host have joined; leaders are elected without them")

    async def resign(self) -> None:
        """Let another broker be elected at once: this one stops. Call it when `run` has ended."""
        lease, key = self._lease.current, self._metadata.keys.controller
        try:
            async with asyncio.timeout(_RESIGN_S):
                item = await self._store.get(key)
                if item is not None and lease is not None and item.lease == lease.id:
                    compare = Compare.unchanged(key, item.mod_revision)
                    await self._store.txn([compare], deletes=[Delete(key=key)])
        except (StoreError, TimeoutError) as error:
            log.warning("the controller's election ends with the lease", extra={"reason": str(error)})

    def _complain(self, error: StoreError) -> None:
        """Once for each trouble, though it is tried again several times a second."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("an election or a plan failed, trying on", extra={"reason": self._trouble})

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        same = (
            before.brokers is after.brokers
            and before.topics is after.topics
            and before.topic_configs is after.topic_configs
            and before.broker_configs is after.broker_configs
            and before.claims is after.claims
        )
        if not same:
            self._wake.set()

    async def _serve(self, lease: Lease) -> None:
        me = str(self._node_id).encode()
        epoch = await campaign(self._store, self._metadata.keys.controller, me, lease)
        lost = asyncio.create_task(lease.lost.wait())
        lost.add_done_callback(lambda _: self._wake.set())
        try:
            await self._metadata.wait_for(epoch)
            self.epoch = epoch
            log.info("this broker is the controller", extra={"epoch": epoch})
            await self._govern(lease)
        finally:
            self.epoch = NOT_ELECTED
            lost.cancel()

    async def _govern(self, lease: Lease) -> None:
        self._preferred_s = self._loop.time()
        widening = Widening()
        while lease.valid():
            self._wake.clear()
            image, config = self._metadata.image, self._settings.current
            restored, awaited = settle_unsettled(image)
            self._report_awaited(awaited)
            changes = restored or (
                [] if self._plans_all else plan(image, config.controller, elections_only=True)
            )
            changes = changes or plan(image, config.controller) or self.preferences()
            wider = [] if changes else widening.plan(image, config.topics.replication_factor)
            if not changes and not wider:
                self._plans_all = False
                await self._until_something_changes()
                continue
            # The rest is planned on the image that shows the elections. It does not wait for those that fail.
            self._plans_all = True  # unless they are written
            failed = await self._commit(changes or wider)
            self._plans_all = bool(failed)
            widening.begun(change for change in wider if change not in failed)
            if failed and not await self._still_elected():
                return

    def _report_awaited(self, awaited: dict[int, int]) -> None:
        """Say which brokers are missing, when that changes."""
        if awaited.keys() != self._awaited.keys():
            if awaited:
                log.error(
                    "partitions have no leader before these brokers have said what they hold, because the "
                    "store was restored: start the brokers, or ask for unclean elections",
                    extra={"partitions by broker": awaited},
                )
            else:
                log.info("every partition has a leader again after the restore of the store")
        self._awaited = awaited

    def preferences(self) -> list[PartitionPut]:
        """Leaders that should go back to their first replicas, when it is time to look."""
        if self.idle_s() > 0:
            return []
        self._preferred_s = self._loop.time()
        percent = self._settings.current.controller.imbalance_percent_max
        return prefer(self._metadata.image, imbalance_percent_max=percent)

    def idle_s(self) -> float:
        """How long nothing has to be done if nothing happens."""
        config = self._settings.current.controller
        if not config.rebalance_leaders:
            return float(config.imbalance_check_interval_s)
        return self._preferred_s + config.imbalance_check_interval_s - self._loop.time()

    async def _until_something_changes(self) -> None:
        try:
            async with asyncio.timeout(self.idle_s()):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _commit(self, changes: list[PartitionPut]) -> list[Change]:
        """Returns what failed: another writer was faster, or another broker is elected."""
        metadata = self._metadata
        failed = await metadata.change_all(changes, [Compare.created(metadata.keys.controller, self.epoch)])
        self._trouble = ""
        if len(failed) < len(changes):
            log.info(
                "partitions have new leaders, in-sync replicas or places",
                extra={"partitions": len(changes) - len(failed)},
            )
        return failed

    async def _still_elected(self) -> bool:
        item = await self._store.get(self._metadata.keys.controller)
        if item is None or item.create_revision != self.epoch:
            log.warning("another broker is the controller now")
            return False
        # Then another writer was faster, and this broker's image shows it, or will soon.
        await asyncio.sleep(_OVERTAKEN_S)
        return True
