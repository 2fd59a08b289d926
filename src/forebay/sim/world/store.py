"""The coordination store of a simulated cluster: one keyspace that all brokers reach over the network.

Requests and answers take time and can get lost: a transaction whose answer does not come may have been
carried out. Leases end on the store's own clock when no keep-alive arrived in time; while the store is down
they do not, as etcd's leader renews them all when it is elected. Watches come late, in order and without a
gap.

For a while another store can answer in its place, or an older state of it (`answer_as`). Its real contents
(`own`) come back afterwards. Processes that cannot tell the two apart get no answer meanwhile: those that
begin, and those that have seen no more of the store than its older state has. They would write to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from forebay.coordination.keys import Keys
from forebay.coordination.keyspace import Keyspace
from forebay.coordination.store import (
    Compacted,
    Compare,
    Delete,
    Event,
    KeyValue,
    LeaseLost,
    Put,
    StoreAway,
    StoreError,
    StoreIdentity,
    TxnResult,
)
from forebay.coordination.store_identity import Header, KnownStore
from forebay.coordination.translate import changes_of_range
from forebay.core.cluster.image import ClusterImage
from forebay.sim.world.loop import ProcessLoop
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.store_contents import Contents, Grant
from forebay.sim.world.virtual_time import World

STORE_HOST = "store"
CLUSTER = "sim"

KEYS = Keys(CLUSTER)
_DELAY_S = (0.0003, 0.004)
_SLOW_FACTOR = 500
_TIMEOUT_S = (1.5, 3.0)
_WATCH_RETRY_S = 0.4
_WATCH_RETRIES_MAX = 12


class Watcher(Protocol):
    """A watch, as the server knows it."""

    host: str
    loop: ProcessLoop
    prefix: str
    position: int
    """The first revision that the reader has not seen."""
    push_due: bool
    events: list[tuple[list[Event], int]]

    def see(self, header: Header) -> None: ...
    def give(self, events: list[Event], revision: int) -> None: ...
    def fail(self, error: StoreError) -> None: ...


class Holder(Protocol):
    """The holder of a lease, which may doubt it."""

    def doubted_since(self) -> float | None: ...
    def unhear(self, doubt_in_s: float) -> Callable[[], None]: ...


Settle = Callable[[Header | None, Any, StoreError | None], None]
"""Called with an answer: its sender, the result, and the error instead. A timeout has no sender."""


class SimStore:
    """The server. It is never killed, as a quorum of etcd is not, but it can be down, cut off, or slow."""

    def __init__(self, world: World, network: SimNetwork) -> None:
        self.world = world
        self.own = Contents("own")
        self._contents = self.own
        """The contents that answer."""
        self._swapped_at = 0
        """The revision at which other contents began to answer in place of the own ones."""
        self.down = False
        self.slow = False
        self.lose_answers_chance = 0.0
        self.watch_delay_s_max = 0.0
        self.on_txn: Callable[[str, Sequence[Put], Sequence[Delete]], None] = lambda *_: None
        """Called with the host whose transaction has succeeded, and with what it wrote."""
        self.on_events: Callable[[Sequence[Event]], None] = lambda _: None
        """Called with every change, even of values that cannot be read."""
        self.on_restore: Callable[[Sequence[KeyValue]], None] = lambda _: None
        """Called with all contents of a backup."""
        self.on_revoke: Callable[[str, Sequence[str]], None] = lambda *_: None
        """Called with the host that ends a lease of another, and with the keys under it."""
        self.garbled: dict[str, tuple[bytes, bytes]] = {}
        """By key: the value that was overwritten, and the unreadable one."""
        self._deaf_until: dict[str, float] = {}
        self._network = network
        self._image = ClusterImage(cluster_id=CLUSTER)
        self._chance = world.chance("store")
        self._leases: dict[str, Holder] = {}
        """The last lease of each host."""
        self._held_back: dict[str, list[Callable[[], None]]] = {}
        """By host: answers to its keep-alives that are held back."""
        self._last_lease = 0
        self._restored_at = 0
        """The revision at which it was last restored to an earlier state."""
        self._watches: dict[Watcher, None] = {}

    def identity(self) -> StoreIdentity:
        return StoreIdentity(
            cluster=CLUSTER,
            index=self.keyspace.revision - self._restored_at,
            revision=self.keyspace.revision,
        )

    def image(self) -> ClusterImage:
        """The present image of the cluster, as if every value were readable. Brokers may not have seen it."""
        if self._image.revision != self.own.keyspace.revision:
            items, revision = self.own.keyspace.range(KEYS.root)
            items = [self._as_it_was(item) for item in items]
            self._image = ClusterImage(cluster_id=CLUSTER).apply(changes_of_range(KEYS, items), revision)
        return self._image

    # -- who answers -------------------------------------------------------------------------------------

    @property
    def keyspace(self) -> Keyspace:
        return self._contents.keyspace

    @property
    def is_itself(self) -> bool:
        return self._contents is self.own

    def answer_as(self, contents: Contents) -> None:
        """Let other contents answer from now on. Watches break off, as when a server ends."""
        self._contents = contents
        self._swapped_at = contents.keyspace.revision
        for watch in self._watches:
            watch.fail(StoreError("the watch broke off"))
        self._watches.clear()
        for lease_id in list(contents.grants):
            self.keep_alive(lease_id)

    def be_itself(self) -> None:
        self.answer_as(self.own)

    def _answers(self, host: str, asker: KnownStore) -> bool:
        return not self.down and not self._network.is_cut(host, STORE_HOST) and self._is_told_apart(asker)

    def _is_told_apart(self, asker: KnownStore) -> bool:
        if self.is_itself:
            return True
        other = asker.store not in ("", self._contents.store_id)
        return other or (asker.store != "" and asker.revision > self._swapped_at)

    # -- values that cannot be read ------------------------------------------------------------------------

    def garble(self, key: str, value: bytes) -> None:
        """Overwrite a value as `etcdctl put` does: the key is under no lease any more."""
        item = self.own.keyspace.get(key)
        assert item is not None
        self.garbled[key] = (item.value, value)
        self._write([Put(key=key, value=value)])

    def repair(self, key: str, *, put_back: bool) -> None:
        """Put the value back, or delete the key, unless somebody has written it since."""
        before, value = self.garbled.pop(key)
        item = self.own.keyspace.get(key)
        if item is not None and item.value == value:
            self.world.note("store", f"{key} is repaired")
            puts, deletes = ([Put(key=key, value=before)], []) if put_back else ([], [Delete(key=key)])
            self._write(puts, deletes)

    def _write(self, puts: Sequence[Put], deletes: Sequence[Delete] = ()) -> None:
        answering, self._contents = self._contents, self.own
        self._apply(self.keyspace.plan([], puts, deletes) or [])
        self._contents = answering

    def _as_it_was(self, item: KeyValue) -> KeyValue:
        before, value = self.garbled.get(item.key, (b"", None))
        return replace(item, value=before) if item.value == value else item

    # -- requests ----------------------------------------------------------------------------------------

    def submit(self, host: str, asker: KnownStore, operation: Callable[[], object], settle: Settle) -> None:
        """A request of a process that knows the store as `asker`."""
        self.world.after(self._delay_s(), self._arrive, host, asker, operation, settle)

    def _arrive(self, host: str, asker: KnownStore, operation: Callable[[], object], settle: Settle) -> None:
        if not self._answers(host, asker):
            self._time_out(settle)
            return
        result: object
        try:
            result, error = operation(), None
        except StoreError as problem:
            result, error = None, problem
        if self._network.is_cut(STORE_HOST, host) or self._chance.random() < self.lose_answers_chance:
            self._time_out(settle)
        else:
            self.world.after(self._delay_s(), settle, self._contents.header(), result, error)

    def _time_out(self, settle: Settle) -> None:
        error = StoreAway("the store did not answer in time")
        self.world.after(self._chance.uniform(*_TIMEOUT_S), settle, None, None, error)

    def _delay_s(self) -> float:
        return self._chance.uniform(*_DELAY_S) * (_SLOW_FACTOR if self.slow else 1)

    def txn(
        self, compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete], host: str
    ) -> TxnResult:
        events = self.keyspace.plan(compares, puts, deletes)
        self._apply(events or [])
        if events:
            self.world.note("store", f"{self.keyspace.revision} {' '.join(event.kv.key for event in events)}")
            if self.is_itself:
                self.on_txn(host, puts, deletes)
        return TxnResult(ok=events is not None, revision=self.keyspace.revision)

    def _apply(self, events: Sequence[Event]) -> None:
        if events:
            self.keyspace.apply(events)
            if self.is_itself:
                self.on_events([replace(event, kv=self._as_it_was(event.kv)) for event in events])
            for watch in list(self._watches):
                self.push_soon(watch)

    # -- leases ------------------------------------------------------------------------------------------

    def grant(self, ttl_s: float) -> int:
        self._last_lease += 1
        self.keyspace.grant(self._last_lease)
        self._contents.grants[self._last_lease] = Grant(ttl_s=ttl_s, expires_at=0.0)
        self.keep_alive(self._last_lease)
        return self._last_lease

    def keep_alive(self, lease_id: int) -> None:
        grant = self._contents.grants.get(lease_id)
        if grant is None:
            raise LeaseLost(f"lease {lease_id} has ended")
        grant.expires_at = self.world.now + grant.ttl_s
        self.world.at(grant.expires_at, self._expire, lease_id)

    def _expire(self, lease_id: int) -> None:
        grant = self._contents.grants.get(lease_id)
        if grant is not None and grant.expires_at <= self.world.now and not self.down:
            self.world.note("lease", f"{lease_id} expired")
            self.revoke(lease_id)

    def revoke(self, lease_id: int) -> None:
        if self._contents.grants.pop(lease_id, None) is not None:
            self.keyspace.end(lease_id)
            self._apply(self.keyspace.plan_expiry())

    def revoke_of_others(self, host: str, lease_id: int) -> None:
        """A host ends a lease by its number."""
        under = [item.key for item in self.keyspace.range(KEYS.root)[0] if item.lease == lease_id]
        self.world.note("lease", f"{lease_id} ended by {host}")
        if self.is_itself:
            self.on_revoke(host, under)
        self.revoke(lease_id)

    def forget(self, node_id: int) -> None:
        """End the lease of a broker now, as if its last keep-alives had not arrived."""
        item = self.own.keyspace.get(KEYS.broker(node_id))
        if item is None:
            return
        self.world.note("lease", f"{item.lease} is not kept")
        answering, self._contents = self._contents, self.own
        self.revoke(item.lease)
        self._contents = answering

    def come_back(self) -> None:
        self.down = False
        for lease_id in list(self._contents.grants):
            self.keep_alive(lease_id)

    # -- backups -----------------------------------------------------------------------------------------

    def backup(self) -> Contents:
        return self.own.copy()

    def restore(self, backup: Contents) -> None:
        """Restore the backup, while no broker runs. Leases come back with it, and begin anew."""
        self.own = backup.copy()
        self._restored_at = self.own.keyspace.revision
        self._image = ClusterImage(cluster_id=CLUSTER)
        self._leases.clear()
        self._held_back.clear()
        self.be_itself()
        self.on_restore(self.own.keyspace.range("")[0])

    # -- doubts ------------------------------------------------------------------------------------------

    def taken(self, host: str, lease: Holder) -> None:
        self._leases[host] = lease

    def doubts_since(self, host: str) -> float | None:
        """Since when the holder of a lease has doubted it; None if it does not, or has none."""
        lease = self._leases.get(host)
        return None if lease is None else lease.doubted_since()

    def hold_back(self, host: str, doubt_in_s: float) -> None:
        """Hold back the answers to the keep-alives of a host, including its last ones.

        So it doubts its lease after that time.
        """
        held_back = self._held_back.setdefault(host, [])
        lease = self._leases.get(host)
        if lease is not None:
            held_back.append(lease.unhear(doubt_in_s))

    def let_through(self, host: str) -> None:
        for arrive in self._held_back.pop(host, []):
            arrive()

    def renewed(self, host: str, arrive: Callable[[], None]) -> None:
        """Note that an answer to a keep-alive has come, or is held back."""
        waiting = self._held_back.get(host)
        if waiting is None:
            arrive()
        else:
            waiting.append(arrive)

    # -- watches -----------------------------------------------------------------------------------------

    def begin_watch(self, watch: Watcher) -> None:
        self._watches[watch] = None
        self.push_soon(watch)

    def end_watches(self, loop: ProcessLoop) -> None:
        self._watches = {watch: None for watch in self._watches if watch.loop is not loop}

    def push_soon(self, watch: Watcher) -> None:
        if not watch.push_due and not watch.events and watch.position <= self.keyspace.revision:
            watch.push_due = True
            delay_s = self._delay_s() + self._chance.uniform(0.0, self.watch_delay_s_max)
            self.world.after(delay_s, self._push, watch, 0)

    def deafen(self, host: str, seconds: float) -> None:
        """Delay the watches of a host by this time. It keeps its lease, and can be reached."""
        self.world.note("fault", f"{host} hears nothing for {seconds:.3f} s")
        self._deaf_until[host] = self.world.now + seconds

    def _push(self, watch: Watcher, tries: int) -> None:
        if watch not in self._watches:
            watch.push_due = False  # it broke off; it may go on
            return
        if self.world.now < self._deaf_until.get(watch.host, 0.0):
            self.world.at(self._deaf_until[watch.host], self._push, watch, tries)
            return
        reachable = not self.down and not self._network.is_cut(STORE_HOST, watch.host)
        if not reachable and tries < _WATCH_RETRIES_MAX:
            self.world.after(_WATCH_RETRY_S, self._push, watch, tries + 1)
            return
        watch.push_due = False
        if not reachable:
            self._watches.pop(watch, None)
            watch.fail(StoreError("the watch broke off"))
            return
        if watch.position <= self.keyspace.compacted:
            self._watches.pop(watch, None)
            watch.fail(Compacted(f"events before revision {self.keyspace.compacted + 1} are gone"))
            return
        events = self.keyspace.since(watch.position)
        watch.see(self._contents.header())
        watch.give(
            [event for event in events if event.kv.key.startswith(watch.prefix)], self.keyspace.revision
        )
