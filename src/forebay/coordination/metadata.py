"""The cluster image of this process: loaded from the store, updated by a watch, changed by guarded writes.

`change` is optimistic: it plans on the present image and writes with a compare on every key that the plan
used. If another writer was faster it plans again on a newer image, so a plan sees either all of another
change or nothing of it. It returns when this process's own image shows the result and the listeners have
acted on it: an administrator who was told "created" can use the topic at once.

The image outlives the store: while the store does not answer, the last image stays in use, `behind` is set,
and the watch is retried until it holds. The same holds while another store answers, or an older state of this
one (`StoreMismatch`): `refused` says why, and nothing of it enters the image.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from forebay.coordination.keys import Keys
from forebay.coordination.store import (
    TXN_OPERATIONS_MAX,
    Compacted,
    Compare,
    Event,
    Store,
    StoreClosed,
    StoreError,
    StoreMismatch,
    Target,
)
from forebay.coordination.store_history import check_events, check_image
from forebay.coordination.translate import Writes, changes_of_events, changes_of_range
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, PartitionPut

Plan = Callable[[ClusterImage], Sequence[Change]]
Listener = Callable[[ClusterImage, ClusterImage], None]

log = logging.getLogger(__name__)

_ATTEMPTS_MAX = 16
_TXNS_IN_FLIGHT_MAX = 8
_CHANGE_OPERATIONS_MAX = 2
"""The maximum that one change adds to a transaction: a compare and a put, and the same for its topic."""
_WATCH_LATE_S = 1.0
_BACKOFF_MIN_S = 0.1
_BACKOFF_MAX_S = 3.0
_SAY_AGAIN_S = 60.0
"""The time between two lines of the log that say why the store is refused."""


class Fenced(StoreError):
    """The writer is no longer what it was when it planned: its key is gone, or belongs to another."""


async def load(store: Store, keys: Keys) -> ClusterImage:
    """The image at the store's present revision."""
    items, revision = await store.range(keys.root)
    cluster_id = next((item.value.decode() for item in items if item.key == keys.cluster_id), "")
    return ClusterImage(cluster_id=cluster_id).apply(changes_of_range(keys, items), revision)


def report_unreadable(image: ClusterImage, before: ClusterImage | None = None) -> None:
    """Log each key that cannot be read, once for each of its values."""
    known = {} if before is None else before.unreadable.by_key
    for key, found in image.unreadable.by_key.items():
        if key not in known or known[key].revision != found.revision:
            log.error(
                "a value in the store cannot be read; what depends on it is out of service until it is"
                " repaired or deleted",
                extra={
                    "key": ascii(key)[1:-1],
                    "revision": found.revision,
                    "reason": ascii(found.reason)[1:-1],
                },
            )
    for key in known.keys() - image.unreadable.by_key.keys():
        log.info("a key in the store is readable again, or gone", extra={"key": ascii(key)[1:-1]})


class Metadata:
    """Create one with `await Metadata.open(...)`, then run `follow()` in a task."""

    def __init__(self, store: Store, keys: Keys, image: ClusterImage) -> None:
        self.image = image
        self.keys = keys
        self.behind = False
        """True if the store is out of reach, so that the image may be old."""
        self.refused: StoreMismatch | None = None
        """Why the answering store is not trusted; None while the right store answers, or none does."""
        self.on_refusal: Callable[[StoreMismatch | None], None] = lambda _: None
        """Called when `refused` changes."""
        self._said_at = -_SAY_AGAIN_S
        self._store = store
        self._listeners: list[Listener] = []
        self._waiters: dict[asyncio.Future[None], int] = {}
        """The revision that each waiter waits for."""
        self._failure: BaseException | None = None
        self._watching: asyncio.Timeout | None = None
        """Ends the running watch."""
        report_unreadable(image)

    @classmethod
    async def open(cls, store: Store, keys: Keys) -> Metadata:
        return cls(store, keys, await load(store, keys))

    def listen(self, listener: Listener) -> None:
        """Call listener(before, after) on every new image, on the event loop, before waiters are woken."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Keep the image up to date until cancelled or the store is closed.

        The exception that ends it also reaches all waiters.
        """
        try:
            await self._follow_for_ever()
        except BaseException as error:
            self._fail(error)
            raise

    async def wait_for(self, revision: int) -> ClusterImage:
        """The image once it has reached this revision.

        Raises StoreMismatch if the store turns out to be another one, or older, meanwhile: the revision may
        belong to a history that is gone by then.
        """
        if self.image.revision < revision:
            if self.refused is not None:
                raise self.refused
            if self._failure is not None:
                raise StoreError("the cluster's metadata is no longer followed") from self._failure
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = revision
            try:
                await waiter
            finally:
                # Also when it gives up: no change may come for days, and many wait for a short time only.
                self._waiters.pop(waiter, None)
        return self.image

    async def change(self, plan: Plan, guards: Sequence[Compare] = ()) -> ClusterImage:
        """Plan on the newest image and commit; returns the image that shows it.

        The guards must hold as well; if one does not, nothing is written and Fenced is raised. Exceptions of
        `plan` are passed on.
        """
        image, is_current = self.image, False
        for _ in range(_ATTEMPTS_MAX):
            writes = Writes(self.keys, image, guards)
            writes.add_all(plan(image))
            if not writes:
                # That it is so already may have been true once: no compare of a transaction tells.
                if is_current or not await self.refresh():
                    return image
                image, is_current = self.image, True
                continue
            result = await self._store.txn(writes.compares, writes.puts, writes.deletes)
            if result.ok:
                return await self.wait_for(result.revision)
            await self._check(guards)
            # Another writer was faster. Its write is certainly in the store, but perhaps not in this image
            # yet.
            image, is_current = await self._load(), True
        raise StoreError("the cluster's metadata changes too fast to keep up with; try again")

    async def refresh(self) -> bool:
        """Make the image as new as the store is now; True if it was not.

        For who is to answer that something is so already, or is not there: the watch may be late.
        """
        _, revision = await self._store.range(self.keys.cluster_id)
        if revision <= self.image.revision:
            return False
        await self.catch_up()
        return True

    async def change_all(self, changes: Sequence[Change], guards: Sequence[Compare] = ()) -> list[Change]:
        """Commit independent changes, in as many transactions as they take; returns those that failed.

        A transaction that was overtaken fails as a whole and is not retried: its planner has to look at a
        newer image. When this returns, the image shows the successful ones, and is newer if anything failed.
        """
        planned_at = self.image.revision
        gone = [change for change in changes if self._is_gone(change)]
        present = [change for change in changes if not self._is_gone(change)]
        chunks, done = await self._commit_in_chunks(present, guards)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        revisions = [outcome for outcome in done if isinstance(outcome, int)]
        if revisions:
            await self.wait_for(max(revisions))
        lost = [members for members, outcome in zip(chunks, done, strict=True) if outcome is None]
        if lost:
            await self._see_who_was_faster(planned_at)
        return gone + [change for members in lost for change in members]

    async def _commit_in_chunks(
        self, changes: Sequence[Change], guards: Sequence[Compare]
    ) -> tuple[list[list[Change]], list[int | BaseException | None]]:
        """The changes of each transaction, and what became of it: its revision, None if it was overtaken.

        The first ones are under way before the last are made: there may be ten thousand changes, and the
        first of them are the most urgent.
        """
        slots = asyncio.Semaphore(_TXNS_IN_FLIGHT_MAX)
        chunks: list[list[Change]] = []
        committing: list[asyncio.Task[int | None]] = []
        try:
            for writes, members in self._chunks(self.image, changes, guards):
                if chunks and len(chunks) % _TXNS_IN_FLIGHT_MAX == 0:
                    await asyncio.sleep(0)
                chunks.append(members)
                committing.append(asyncio.create_task(self._commit_chunk(writes, slots)))
            return chunks, await asyncio.gather(*committing, return_exceptions=True)
        except BaseException:
            for each in committing:
                each.cancel()
            raise

    def _chunks(
        self, image: ClusterImage, changes: Sequence[Change], guards: Sequence[Compare]
    ) -> Iterator[tuple[Writes, list[Change]]]:
        """`image`: the one that the changes were planned on."""
        writes, members = Writes(self.keys, image, guards), list[Change]()
        for change in changes:
            if members and writes.operations + _CHANGE_OPERATIONS_MAX > TXN_OPERATIONS_MAX:
                yield writes, members
                writes, members = Writes(self.keys, image, guards), []
            writes.add(change)
            members.append(change)
        if members:
            yield writes, members

    async def _see_who_was_faster(self, revision: int) -> None:
        """Wait for a newer image; do not rely on a watch that stays silent."""
        try:
            async with asyncio.timeout(_WATCH_LATE_S):
                await self.wait_for(revision + 1)
        except TimeoutError:
            await self.catch_up()

    def _is_gone(self, change: Change) -> bool:
        """True if its topic was deleted since it was planned."""
        return isinstance(change, PartitionPut) and change.topic_id not in self.image.topic_names

    async def _commit_chunk(self, writes: Writes, slots: asyncio.Semaphore) -> int | None:
        async with slots:
            result = await self._store.txn(writes.compares, writes.puts, writes.deletes)
        return result.revision if result.ok else None

    async def _check(self, guards: Sequence[Compare]) -> None:
        for guard in guards:
            item = await self._store.get(guard.key)
            created = guard.target is Target.CREATE_REVISION
            revision = 0 if item is None else item.create_revision if created else item.mod_revision
            if revision != guard.revision:
                raise Fenced(f"{guard.key} is no longer at revision {guard.revision}; nothing was written")

    async def _follow_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = _BACKOFF_MIN_S
        while True:
            since = loop.time()
            try:
                if self.behind:
                    await self.catch_up()
                    self.behind = False
                    self._store.known.believe(self.image.revision)
                    self._refuse(None)
                    log.info("metadata is up to date again, at revision %d", self.image.revision)
                try:
                    async with asyncio.timeout(None) as self._watching:
                        await self._follow_watch()
                finally:
                    self._watching = None
            except StoreClosed:
                raise
            except TimeoutError:
                # A load elsewhere has found another history (`_load`): check it here, too.
                if not self.behind:
                    raise
            except Compacted:
                self.behind = True
            except StoreError as error:
                self._fall_behind(error)
                # A watch that held for a while resets the backoff.
                if loop.time() - since > _BACKOFF_MAX_S:
                    backoff_s = _BACKOFF_MIN_S
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    def _refuse(self, why: StoreMismatch | None) -> None:
        if why is not None and asyncio.get_running_loop().time() >= self._said_at + _SAY_AGAIN_S:
            self._said_at = asyncio.get_running_loop().time()
            log.error("the store is not believed: %s", why.message)
        if why is None:
            self._said_at = -_SAY_AGAIN_S
        self._store.known.contents_refused = why is not None
        if why is not self.refused:
            self.refused = why
            self.on_refusal(why)
        if why is not None:
            self._end_waits(why)

    def _fall_behind(self, error: StoreError) -> None:
        if isinstance(error, StoreMismatch):
            self._refuse(error)
        elif not self.behind:
            log.warning("metadata is no longer up to date, trying on: %s", error.message)
        self.behind = True
        self._store.known.doubt()

    async def catch_up(self) -> None:
        """Make the image at least as new as the store is now, however late the watch is."""
        image = await self._load()
        # The watch may have been faster. It may also have missed a restore: then its events belong to another
        # history, and the image has the store's revision, but not its contents.
        is_other = image.revision == self.image.revision and image.restore.id != self.image.restore.id
        if image.revision > self.image.revision or is_other:
            self._publish(image)

    async def _load(self) -> ClusterImage:
        """Raises StoreMismatch for contents that cannot follow the image in use.

        The watch ends then, whoever loads: it has no event for what happened before the image's revision, and
        would mix one history with another.
        """
        before = self.image
        after = await load(self._store, self.keys)
        try:
            check_image(before, after, strict=self.refused is not None)
        except StoreMismatch as error:
            self._store.known.disprove(before.revision)
            self._fall_behind(error)
            watching, self._watching = self._watching, None  # whoever loads next finds it ending
            if watching is not None:
                watching.reschedule(asyncio.get_running_loop().time())
            raise
        return after

    async def _follow_watch(self) -> None:
        async for events, revision in self._store.watch(self.keys.root, self.image.revision + 1):
            if not events:
                await self.catch_up()
                continue
            # What the image was loaded with meanwhile is known already.
            news = [event for event in events if event.kv.mod_revision > self.image.revision]
            if not news:
                continue
            check_events(self.keys, self.image.cluster_id, news)
            changes = None if self._must_load(news) else changes_of_events(self.keys, news)
            if changes is None:
                await self.catch_up()
            else:
                self._publish(self.image.apply(changes, revision))

    def _must_load(self, events: Sequence[Event]) -> bool:
        """True if the events alone do not show what the store holds.

        If a key was unreadable, the store has what depends on it, and the image does not. If the store was
        restored, the image may have what was never there, or not before.
        """
        unreadable, root, restored = self.image.unreadable, self.keys.root, self.keys.restored
        return any(
            event.kv.key == restored or (unreadable and event.kv.key.removeprefix(root) in unreadable)
            for event in events
        )

    def _publish(self, image: ClusterImage) -> None:
        before, self.image = self.image, image
        if image.unreadable is not before.unreadable:
            report_unreadable(image, before)
        for listener in self._listeners:
            listener(before, image)
        for waiter, revision in self._waiters.items():
            if revision <= image.revision and not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._end_waits(StoreError("the cluster's metadata is no longer followed"))

    def _end_waits(self, error: StoreError) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
