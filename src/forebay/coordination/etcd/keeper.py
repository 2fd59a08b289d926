"""The thread that keeps a lease alive while the event loop is alive.

It is a thread because a busy loop must not lose the lease; it checks the loop's heartbeat because a loop that
hangs must. It has its own event loop and connections, and shares only single values with the other side,
which are read and written atomically.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from forebay.clock import Clock
from forebay.config import ClusterConfig
from forebay.coordination.etcd.failures import Refused, refusal_in
from forebay.coordination.etcd.gateway import Gateway
from forebay.coordination.store import StoreError
from forebay.coordination.store_identity import KnownStore

log = logging.getLogger(__name__)

_AGAIN_S = 0.2
"""The pause after a keep-alive that failed."""
_RENEWALS_PER_TTL = 4
_MARGIN_OF_TTL = 1 / 8


class Keeper:
    def __init__(
        self,
        config: ClusterConfig,
        clock: Clock,
        *,
        lease_id: int,
        ttl_s: float,
        sent_at: float,
        known: KnownStore,
    ) -> None:
        self._known = known
        self.lease_id = lease_id
        self.ended: Future[None] = Future()
        """Done when the thread is."""
        self._config = config
        self._clock = clock
        self._interval_s = ttl_s / _RENEWALS_PER_TTL
        self.deadline = _deadline(sent_at, ttl_s)
        self._beaten_at = clock.monotonic()
        self._stopping = threading.Event()
        self._wake: Callable[[], None] = _nothing
        self._trouble = ""

    @property
    def holds(self) -> bool:
        return self._clock.monotonic() < self.deadline

    def beat(self) -> None:
        """Note that the event loop is alive."""
        self._beaten_at = self._clock.monotonic()

    def start(self, on_lost: Callable[[], None]) -> None:
        """Calls on_lost, in the thread, when etcd has ended the lease."""
        threading.Thread(target=self._main, args=(on_lost,), name="forebay-lease", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake()

    # -- the thread ----------------------------------------------------------------------------------

    def _main(self, on_lost: Callable[[], None]) -> None:
        try:
            asyncio.run(self._keep())
        finally:
            # However it ended: if nobody asked for it, nobody renews the lease any more.
            if not self._stopping.is_set():
                on_lost()
            self.ended.set_result(None)

    async def _keep(self) -> None:
        """Renew until told to stop, or until there is nothing left to renew."""
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._wake = lambda: _call_in(loop, woken.set)
        # A silent server must leave enough time to try the others before the lease expires.
        gateway = Gateway(
            self._config,
            answer_timeout_s=self._interval_s / 2,
            request_timeout_s=self._interval_s,
            known=self._known,
        )
        renewing = asyncio.create_task(self._renew_for_ever(gateway))
        if self._stopping.is_set():
            woken.set()
        stopped = asyncio.create_task(woken.wait())
        try:
            await asyncio.wait((renewing, stopped), return_when=asyncio.FIRST_COMPLETED)
            if renewing.done():
                renewing.result()
        finally:
            for task in (renewing, stopped):
                task.cancel()
            await asyncio.gather(renewing, stopped, return_exceptions=True)
            gateway.close()

    async def _renew_for_ever(self, gateway: Gateway) -> None:
        """Returns when the lease is lost."""
        # At once for the first time: login problems must not surface when it is urgent.
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            sent_at = self._clock.monotonic()
            if sent_at - self._beaten_at > self._interval_s:
                self._warn("the event loop stands still")
                pause_s = _AGAIN_S
                continue
            if self._known.contents_refused:
                self._warn("the store has another history than this broker")
                pause_s = _AGAIN_S
                continue
            try:
                if self._known.refused is not None:
                    # Otherwise it would keep alive what an older state of the store still has of this broker.
                    await gateway.confirm()
                ttl_s = await self._renew(gateway)
            except (StoreError, Refused) as error:
                self._warn(str(error))
                pause_s = _AGAIN_S
                continue
            if ttl_s <= 0:
                return
            self.deadline = _deadline(sent_at, ttl_s)
            self._all_well()
            pause_s = self._interval_s

    async def _renew(self, gateway: Gateway) -> float:
        """The time to live from now on; none if the lease no longer exists."""
        answer = await gateway.call("/v3/lease/keepalive", {"ID": str(self.lease_id)}, repeatable=True)
        if "error" in answer:
            raise refusal_in(answer)
        return float(answer.get("result", {}).get("TTL", 0))

    def _warn(self, trouble: str) -> None:
        if not self._trouble:
            left_s = max(0.0, self.deadline - self._clock.monotonic())
            log.warning("the lease of this broker is not renewed and holds for %.1f s: %s", left_s, trouble)
        self._trouble = trouble

    def _all_well(self) -> None:
        if self._trouble:
            log.info("the lease of this broker is renewed again")
        self._trouble = ""


def _deadline(sent_at: float, ttl_s: float) -> float:
    return sent_at + ttl_s * (1 - _MARGIN_OF_TTL)


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the thread has ended already
        loop.call_soon_threadsafe(call)


def _nothing() -> None:
    """Before the thread runs there is nothing to wake; it checks `_stopping` first."""
