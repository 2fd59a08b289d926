"""Networks that are cut or slow, and a store that is down, slow or forgetful."""

from __future__ import annotations

from dataclasses import replace

from forebay.coordination.store import Put, StoreMismatch
from forebay.coordination.store_history import check_image
from forebay.coordination.translate import changes_of_range
from forebay.core.cluster.image import ClusterImage
from forebay.sim.faults.scene import Fault, Scene, Undo
from forebay.sim.world.places import SHARE_STATES
from forebay.sim.world.store import KEYS, STORE_HOST
from forebay.sim.world.store_contents import Contents

_AWAY_S = (0.0, 0.15)
"""How long it takes to start a broker again."""
_LATE_S = (0.0, 1.0)
_MOMENT_S = (0.0, 0.3)
"""A broker that refuses for this long may be back between the two attempts of a verdict, or just after."""
_DEAF_S = (1.0, 30.0)
_DOUBT_IN_S = (0.0, 1.0)
_DOUBT_S = (0.05, 1.5)
"""How long a broker doubts its lease before an answer confirms it, or the broker gives it up."""

_OTHERS_AFTER_S = (1.0, 8.0)
_REVISIONS_AWAY = (-1_000_000, 1, 20, 500)
"""How many revisions later another store may be; the first makes it an empty one."""
_BACKUP_AGE_S = (0.5, 8.0)
_OUTAGE_S = (0.5, 12.0)


class LinkFaults:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = scene.chance
        self._network = scene.network
        self._store = scene.store
        self._wrong: Contents | None = None
        """The contents that answer in place of the store, or will after an outage."""

    def kinds(self) -> list[tuple[Fault, int]]:
        return [
            (self._cut, 4),
            (self._cut_both_ways, 3),
            (self._isolate, 5),
            (self._reset, 3),
            (self._refuse, 4),
            (self._restart_behind_a_wall, 4),
            (self._shut_out, 4),
            (self._slow_link, 4),
            (self._cut_from_store, 3),
            (self._store_down, 2),
            (self._store_forgets_to_answer, 2),
            (self._slow_watches, 2),
            (self._slow_store, 3),
            (self._doubt, 4),
            (self._another_store, 2),
            (self._store_goes_back, 2),
        ]

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        """Faults of single plots."""
        return [
            (self._refuse_for_a_moment, 4),
            (self._refuse_the_deaf, 12),
            (self._cut_off_share_coordinator, 10),
        ]

    # -- network -----------------------------------------------------------------------------------------

    def _cut(self) -> Undo:
        one, other = self._scene.pair()
        return self._cut_all([(one, other)])

    def _cut_both_ways(self) -> Undo:
        one, other = self._scene.pair()
        return self._cut_all([(one, other), (other, one)])

    def _isolate(self) -> Undo:
        """Cut a broker off from its peers; clients still reach it, and it may or may not reach the store."""
        lonely = self._scene.victim().host
        others = [node.host for node in self._scene.nodes if node.host != lonely]
        if self._chance.random() < 0.5:
            others.append(STORE_HOST)
        return self._cut_all([pair for other in others for pair in ((lonely, other), (other, lonely))])

    def _cut_off_share_coordinator(self) -> Undo | None:
        """No other broker reaches the one that keeps the state of share groups; clients reach all."""
        node = self._scene.leader_of(self._chance.choice(SHARE_STATES))
        if node is None:
            return None
        others = [each.host for each in self._scene.nodes if each is not node]
        return self._cut_all([pair for host in others for pair in ((node.host, host), (host, node.host))])

    def _cut_from_store(self) -> Undo:
        host = self._scene.victim().host
        ways = [(host, STORE_HOST), (STORE_HOST, host)]
        return self._cut_all(ways[: self._chance.randint(1, 2)])

    def _cut_all(self, pairs: list[tuple[str, str]]) -> Undo:
        self._scene.note("cut " + ", ".join(f"{one} > {other}" for one, other in pairs))
        for pair in pairs:
            self._network.cut(*pair)

        def mend() -> None:
            for pair in pairs:
                self._network.mend(*pair)

        return mend

    def _slow_link(self) -> Undo:
        pair = self._scene.pair()
        self._scene.note(f"slow {pair[0]} > {pair[1]}")
        self._network.slow_down(*pair)
        return lambda: self._network.speed_up(*pair)

    def _reset(self) -> None:
        one, other = self._scene.pair()
        self._scene.note(f"connections between {one} and {other} are reset")
        self._network.reset_between(one, other)

    def _refuse(self) -> Undo | None:
        """A broker is alive, and connections to it from some or all others are reset, and then refused."""
        node = self._scene.mortal()
        return None if node is None else self._wall(node.host)

    def _refuse_for_a_moment(self) -> None:
        node = self._scene.mortal()
        if node is not None:
            self._scene.later(self._chance.uniform(*_MOMENT_S), self._wall(node.host))

    def _refuse_the_deaf(self) -> Undo | None:
        """A broker is refused, and is not notified of the consequences; its lease is kept."""
        node = self._scene.mortal()
        if node is None:
            return None
        self._store.deafen(node.host, self._chance.uniform(*_DEAF_S))
        return self._wall(node.host)

    def _shut_out(self) -> Undo:
        """Connections between a broker and the others are reset, and nothing gets through any more."""
        host = self._scene.victim().host
        others = [node.host for node in self._scene.nodes if node.host != host]
        for other in others:
            self._network.reset_between(host, other)
        return self._cut_all([pair for other in others for pair in ((host, other), (other, host))])

    def _wall(self, host: str) -> Undo:
        others = [node.host for node in self._scene.nodes if node.host != host]
        kept_out = others if self._chance.random() < 0.7 else others[:1]
        self._scene.note(f"{host} seems to refuse {', '.join(kept_out)}")
        for other in kept_out:
            self._network.refuse(other, host)
            self._network.reset_between(other, host)

        def open_again() -> None:
            for other in kept_out:
                self._network.accept(other, host)

        return open_again

    def _restart_behind_a_wall(self) -> Undo | None:
        """A broker is killed and back at once; the others are refused all the time, and are notified late."""
        node = self._scene.mortal()
        if node is None:
            return None
        open_again = self._wall(node.host)
        for other in self._scene.nodes:
            if other is not node:
                self._store.deafen(other.host, self._chance.uniform(*_LATE_S))
        node.kill()
        self._scene.later(self._chance.uniform(*_AWAY_S), node.start)
        return open_again

    # -- the store ---------------------------------------------------------------------------------------

    def _store_down(self) -> Undo:
        self._scene.note("the store is down")
        self._store.down = True
        return self._store.come_back

    def _slow_store(self) -> Undo:
        self._scene.note("the store is slow")
        self._store.slow = True
        return lambda: setattr(self._store, "slow", False)

    def _store_forgets_to_answer(self) -> Undo:
        self._scene.note("the store does not answer always")
        self._store.lose_answers_chance = 0.3
        return lambda: setattr(self._store, "lose_answers_chance", 0.0)

    def _slow_watches(self) -> Undo:
        self._scene.note("watches are slow")
        self._store.watch_delay_s_max = 2.0
        return lambda: setattr(self._store, "watch_delay_s_max", 0.0)

    def _another_store(self) -> Undo | None:
        """Another store answers in place of the real one, often after an outage."""
        if self._wrong is not None:
            return None
        revision = self._store.own.keyspace.revision + self._chance.choice(_REVISIONS_AWAY)
        another = Contents.of_another(max(revision, 0))
        self._swap(another, f"another store answers, at revision {another.keyspace.revision}")
        return self._return_own_store

    def _store_goes_back(self) -> Undo | None:
        """A backup is restored while brokers run, and later the state before."""
        if self._wrong is not None:
            return None
        backup = self._store.own.copy()
        self._scene.world.after(self._chance.uniform(*_BACKUP_AGE_S), self._restore, backup)
        return None

    def _restore(self, backup: Contents) -> None:
        """Left out where a broker's image has not changed since the backup, but for what is under leases. Its
        revision is too low first, and rises when leases end there. From then on that broker could not tell,
        and would write to it."""
        if self._scene.healed or self._wrong is not None or not self._is_recognised(backup):
            return
        self._swap(backup, f"the store goes back to revision {backup.keyspace.revision}")
        self._scene.world.after(self._chance.uniform(*_OTHERS_AFTER_S), self._let_others_write, backup)
        self._scene.later(self._scene.a_while(), self._return_own_store)

    def _let_others_write(self, backup: Contents) -> None:
        """Others use the same etcd: soon its revision is higher than it was. Left out if a broker was started
        meanwhile and cannot tell."""
        ahead = self._store.own.keyspace.revision - backup.keyspace.revision
        if self._wrong is backup and ahead > 0 and self._is_recognised(backup):
            self._scene.note("others write to the store that went back")
            for number in range(ahead + self._chance.randint(1, 30)):
                put = Put(key=f"/others/{number}", value=b"")
                backup.keyspace.apply(backup.keyspace.plan((), [put], ()) or ())

    def _is_recognised(self, backup: Contents) -> bool:
        """True if all brokers that run refuse it, also when the leases in it have ended."""
        items = [item for item in backup.keyspace.range(KEYS.root)[0] if not item.lease]
        found = ClusterImage(cluster_id="").apply(changes_of_range(KEYS, items), 1 << 40)
        for node in self._scene.nodes:
            if node.broker is not None:
                try:
                    check_image(replace(node.broker.image, cluster_id=""), found, strict=True)
                    return False
                except StoreMismatch:
                    pass
        return True

    def _swap(self, contents: Contents, words: str) -> None:
        self._scene.note(words)
        self._wrong = contents
        if self._chance.random() < 0.5:
            self._store.answer_as(contents)
            return
        self._store.down = True
        back_s = self._chance.uniform(*_OUTAGE_S)
        self._scene.world.after(back_s, self._come_back_as, contents)

    def _come_back_as(self, contents: Contents) -> None:
        self._store.come_back()
        if self._wrong is contents:
            self._store.answer_as(contents)

    def _return_own_store(self) -> None:
        self._scene.note("the store is itself again")
        self._wrong = None
        self._store.be_itself()

    def _doubt(self) -> None:
        """The answers to a broker's keep-alives come late: it doubts its lease, although it holds it."""
        host, doubt_in_s = self._scene.victim().host, self._chance.uniform(*_DOUBT_IN_S)
        self._scene.note(f"keep-alives of {host} are answered late")
        self._store.hold_back(host, doubt_in_s)
        doubt_s = self._chance.uniform(*_DOUBT_S)
        self._scene.later(doubt_in_s + doubt_s, lambda: self._store.let_through(host))
