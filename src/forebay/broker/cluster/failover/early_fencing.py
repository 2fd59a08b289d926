"""Ending the registration of a broker that refuses connections, before its lease ends.

The order is what makes it safe. All that the verdict rests on is read first; then the broker is tried once
more; and only a transaction comes after that. It compares the registration with the one that was watched, so
a broker that has come back meanwhile is not touched. It compares the registrations of all others, which are
to lead in its place, and who is the controller. And it takes one of a few places for verdicts on this broker,
which are free again after a minute by the store's clock: that bounds the verdicts of all brokers together.

Then the lease is ended too. If the broker is alive, its image shows that its registration is gone, or, should
it hear of no change, its next keep-alive says that the lease is: it stops leading, and registers again
(`membership.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container

from forebay.broker.background import Background
from forebay.broker.cluster.failover.failover_times import FailoverTimes
from forebay.broker.cluster.failover.peer_watch import Suspicion
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.live_config import LiveConfig
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import ControllerConfig
from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Compare, Delete, Put, Store, StoreClosed, StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.early_fencing import obstacle, turn
from forebay.lazy import dataclass

log = logging.getLogger(__name__)

_BETWEEN_S = 0.1
"""The least time between the two refusals that make a verdict."""
_TURN_S = 0.3
"""How long each broker waits for those before it to judge the controller."""
_KEPT_S = 75.0
"""How long a verdict counts: a minute, and what may pass between its preparation and itself."""
_REVOKE_ATTEMPTS_MAX = 20
_REVOKE_PAUSE_S = 0.5
_COMPARED_MAX = 100
"""Other brokers whose registrations are compared: a transaction has its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The change to write if the broker refuses once more."""

    suspicion: Suspicion
    lease: int
    """The one that the registration is under."""
    compares: list[Compare]
    puts: list[Put]
    deletes: list[Delete]


class Verdicts:
    def __init__(
        self,
        *,
        node_id: int,
        settings: LiveConfig,
        metadata: Metadata,
        store: Store,
        lease: HeldLease,
        times: FailoverTimes,
        metrics: Metrics,
        background: Background,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._store = store
        self._lease = lease
        self._times = times
        self._metrics = metrics
        self._background = background
        self._loop = loop
        self._busy = False
        """One at a time: the next one is judged on an image that shows the one before."""
        self._told: dict[int, tuple[int, str]] = {}
        """By broker: its epoch, and why its lease has to end first."""
        self._judged: tuple[ClusterImage, ControllerConfig, int, str | None] | None = None
        """What was found last: each verdict asks twice, and mostly the image is the same."""

    async def consider(self, suspicion: Suspicion) -> None:
        if self._busy:
            return
        self._busy = True
        passing = False
        try:
            verdict = await self._prepare(suspicion)
            if verdict is not None and await self._is_refused_again(suspicion) and self._may_judge(suspicion):
                # In a task of its own: the watch ends when the image shows the result.
                passing = True
                self._background.spawn(self._pass(verdict), "ending a registration")
        except StoreError as error:
            self._tell(suspicion.peer, str(error))
        finally:
            self._busy = passing
            self._judged = None

    async def _is_refused_again(self, suspicion: Suspicion) -> bool:
        await asyncio.sleep(suspicion.refused_at + _BETWEEN_S - self._loop.time())
        return await suspicion.refuses_again()

    # -- preparing -----------------------------------------------------------------------------------

    async def _prepare(self, suspicion: Suspicion) -> Verdict | None:
        peer, keys, image = suspicion.peer, self._metadata.keys, self._metadata.image
        if not self._may_judge(suspicion):
            return None
        registered = await self._store.get(keys.broker(peer.id))
        controller = await self._store.get(keys.controller)
        if registered is None or registered.create_revision != peer.epoch or controller is None:
            return None
        holder = controller.value.decode(errors="replace")
        if holder not in (str(self._node_id), str(peer.id)):
            return None
        place = free_place(
            {item.key for item in (await self._store.range(keys.verdicts(peer.id)))[0]},
            keys.verdicts(peer.id),
            self._settings.current.controller.verdicts_per_minute_max,
        )
        if place is None:
            self._tell(peer, "that was so several times in the last minute")
            return None
        deletes = [Delete(key=keys.broker(peer.id))]
        if holder == str(peer.id):
            deletes.append(Delete(key=keys.controller))
        return Verdict(
            suspicion=suspicion,
            lease=registered.lease,
            compares=[
                registration_unchanged(keys, peer),
                *others_unchanged(keys, image, peer.id, self._node_id),
                Compare.created(keys.controller, controller.create_revision),
                Compare.absent(place),
            ],
            puts=[
                Put(key=place, value=str(self._node_id).encode(), lease=await self._store.expiring(_KEPT_S))
            ],
            deletes=deletes,
        )

    def _may_judge(self, suspicion: Suspicion) -> bool:
        """True if this broker may judge now, as far as its image shows. One that is not sure of its own lease
        judges nobody."""
        peer, image = suspicion.peer, self._metadata.image
        if not self._lease.valid() or image.brokers.get(peer.id) != peer:
            return False
        place = turn(image, self._node_id, peer.id, suspicion.refusing)
        if place is None or self._loop.time() < suspicion.broken_at + place * _TURN_S:
            return False
        reason = self._obstacle(image, peer.id)
        if reason is not None:
            self._tell(peer, reason)
        return reason is None

    def _obstacle(self, image: ClusterImage, victim: int) -> str | None:
        config, judged = self._settings.current.controller, self._judged
        if judged is None or judged[0] is not image or judged[1] is not config or judged[2] != victim:
            judged = self._judged = (image, config, victim, obstacle(image, victim, config))
        return judged[3]

    # -- passing -------------------------------------------------------------------------------------

    async def _pass(self, verdict: Verdict) -> None:
        suspicion, before = verdict.suspicion, self._metadata.image
        proven_at = self._loop.time()
        try:
            fenced_at = await self._fence(verdict)
        finally:
            self._busy = False
        if fenced_at is not None:
            await self._times.measure(
                suspicion.peer.id,
                before,
                broken_at=suspicion.broken_at,
                proven_at=proven_at,
                fenced_at=fenced_at,
            )

    async def _fence(self, verdict: Verdict) -> float | None:
        """When the registration was ended; None if it was not, or nobody knows. The image shows it then."""
        peer = verdict.suspicion.peer
        try:
            result = await self._store.txn(verdict.compares, verdict.puts, verdict.deletes)
        except StoreError as error:
            self._tell(peer, str(error))
            self._end_lease_soon(verdict)  # whether the registration was ended will be seen
            return None
        if not result.ok:
            return None  # it has come back, another broker was faster, or this one is not asked any more
        self._metrics.failovers += 1
        log.warning(
            "a broker refuses connections and is counted as dead",
            extra={"broker": peer.id, "address": f"{peer.host}:{peer.port}"},
        )
        fenced_at = self._loop.time()
        self._end_lease_soon(verdict)
        await self._metadata.wait_for(result.revision)
        return fenced_at

    def _end_lease_soon(self, verdict: Verdict) -> None:
        self._background.spawn(self._end_lease(verdict), "ending a lease")

    async def _end_lease(self, verdict: Verdict) -> None:
        """Nothing is under this lease any more, and nothing will be: a broker that registers again has a new
        one. So this can be tried at any time. If it fails, the broker learns of the verdict by its watch."""
        peer = verdict.suspicion.peer
        for _ in range(_REVOKE_ATTEMPTS_MAX):
            try:
                registered = await self._store.get(self._metadata.keys.broker(peer.id))
                if registered is None or registered.create_revision != peer.epoch:
                    await self._store.revoke(verdict.lease)
                return
            except StoreClosed:
                return
            except StoreError as error:
                reason = str(error)
            await asyncio.sleep(_REVOKE_PAUSE_S)
        log.warning("a lease is left to its broker", extra={"broker": peer.id, "reason": reason})

    def _tell(self, peer: BrokerRegistration, reason: str) -> None:
        """Once for each reason, though it is tried several times a second."""
        if self._told.get(peer.id) != (peer.epoch, reason):
            self._told[peer.id] = peer.epoch, reason
            log.warning(
                "a broker refuses connections, and its lease has to end first",
                extra={"broker": peer.id, "reason": reason},
            )


def registration_unchanged(keys: Keys, peer: BrokerRegistration) -> Compare:
    return Compare.created(keys.broker(peer.id), peer.epoch)


def others_unchanged(keys: Keys, image: ClusterImage, victim: int, judge: int) -> list[Compare]:
    """The judge must still be there, and so must those who are to lead in its place."""
    brokers = [each for each in image.brokers.values() if each.id != victim]
    brokers.sort(key=lambda each: each.id != judge)
    return [Compare.created(keys.broker(each.id), each.epoch) for each in brokers[:_COMPARED_MAX]]


def free_place(taken: Container[str], prefix: str, count: int) -> str | None:
    """A key for one more verdict of this minute."""
    places = (f"{prefix}{number}" for number in range(count))
    return next((place for place in places if place not in taken), None)
