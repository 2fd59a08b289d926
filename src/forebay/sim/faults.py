"""The faults of a story: what goes wrong, when and for how long; in the end everything is taken back.

Some losses no system survives, and the story leaves them out: while one machine has lost its power or its
disk and is not yet back in sync, no other does. What the cluster promises then is in docs/guarantees.md.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence

from forebay.sim.workload import SURE
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.node import SimNode
from forebay.sim.world.store import STORE_HOST, SimStore
from forebay.sim.world.virtual_time import World

Undo = Callable[[], None]

_SHORT_S = (0.2, 3.0)
_LONG_S = (3.0, 14.0)
_CHANGES_BEFORE_DEATH_MAX = 30
_ALONE_S_MAX = 14.0
_LOOK_S = 0.25
_BETWEEN_S = (0.05, 2.0)
_JUMP_MS = (-90_000, 90_000)


class Faults:
    def __init__(
        self,
        world: World,
        network: SimNetwork,
        store: SimStore,
        nodes: Sequence[SimNode],
        in_sync: Callable[[], bool],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._network = network
        self._store = store
        self._nodes = nodes
        self._in_sync = in_sync
        self._chance = world.chance("faults")
        self._under_way: dict[int, Undo] = {}
        self._last_undo = 0
        self._healed = False
        self._robbed: SimNode | None = None
        """Has lost what was not synced, and may not be back in sync yet."""
        kinds: list[tuple[Callable[[], Undo | None], int]] = [
            (self._kill, 6),
            (self._kill_in_the_act, 4),
            (self._stop, 3),
            (self._lose_power, 5),
            (self._lose_disk, 1),
            (self._pause, 5),
            (self._cut, 4),
            (self._cut_both_ways, 3),
            (self._isolate, 5),
            (self._cut_from_store, 3),
            (self._store_down, 2),
            (self._store_forgets_to_answer, 2),
            (self._slow_watches, 2),
            (self._disk_errors, 2),
            (self._disk_full, 2),
            (self._jump, 2),
            (self._reset, 3),
            (self._slow_link, 4),
            (self._slow_store, 3),
            (self._abandon_and_rob, 4),
        ]
        # Every story has its favourites: what never meets among all faults at once meets among a few.
        self._kinds = [(kind, weight * self._chance.choice((0, 1, 1, 4))) for kind, weight in kinds]
        self._kinds[0] = kinds[0]

    def step(self) -> None:
        """Let one more thing go wrong."""
        if self._in_sync():
            self._robbed = None
        kinds, weights = zip(*self._kinds, strict=True)
        fault: Callable[[], Undo | None] = self._chance.choices(kinds, weights)[0]
        undo = fault()
        name = getattr(fault, "__name__", "").strip("_").replace("_", " ")
        self.counts[name] += 1
        if undo is not None:
            seconds = self._chance.uniform(*(_SHORT_S if self._chance.random() < 0.5 else _LONG_S))
            self._later(seconds, undo)

    def _later(self, seconds: float, undo: Undo) -> None:
        self._last_undo += 1
        self._under_way[self._last_undo] = undo
        self._world.after(seconds, self._undo, self._last_undo)

    def _undo(self, number: int) -> None:
        undo = self._under_way.pop(number, None)
        if undo is not None:
            undo()

    def heal(self) -> None:
        """Take everything back; brokers whose disks failed are started anew, as an operator would."""
        self._world.note("heal", "")
        self._healed = True
        for number in list(self._under_way):
            self._undo(number)
        for node in self._nodes:
            node.live_on()
            self._start_anew(node)

    def _start_anew(self, node: SimNode) -> None:
        if node.disk_failed and node is not self._robbed and self._is_taken_for_alive(self._robbed):
            self._world.after(_LOOK_S, self._start_anew, node)
            return
        if node.disk_failed:
            node.disk_failed = False
            node.kill()
        node.start()

    def keep_running(self) -> None:
        """Start brokers that ended by themselves, as a supervisor does."""
        for node in self._nodes:
            if node.gave_up:
                node.start()

    def _note(self, text: str) -> None:
        self._world.note("fault", text)

    def _victim(self) -> SimNode:
        """Any broker, but often one that leads something, for that hurts more."""
        if self._chance.random() < 0.5:
            leader = self._leader_of(self._chance.choice(SURE))
            if leader is not None:
                return leader
        return self._chance.choice(self._nodes)

    def _leader_of(self, at: tuple[str, int]) -> SimNode | None:
        for node in self._nodes:
            if node.ready and node.broker is not None:
                state = node.broker.image.partition(*at)
                if state is not None and 0 < state.leader <= len(self._nodes):
                    return self._nodes[state.leader - 1]
        return None

    def _pair(self) -> tuple[str, str]:
        if len(self._nodes) < 2:
            return self._nodes[0].host, STORE_HOST
        one, other = self._chance.sample(self._nodes, 2)
        return one.host, other.host

    # -- processes and machines --------------------------------------------------------------------------

    def _kill(self) -> Undo | None:
        node = self._mortal()
        if node is None:
            return None
        node.kill()
        return node.start

    def _kill_in_the_act(self) -> Undo | None:
        node = self._mortal()
        if node is None:
            return None
        node.kill_after(self._chance.randint(0, _CHANGES_BEFORE_DEATH_MAX))
        return node.start

    def _stop(self) -> Undo | None:
        node = self._mortal()
        if node is None or self._robbed is not None:
            return None
        node.stop()
        return node.start

    def _mortal(self) -> SimNode | None:
        """A broker that may end now: not while one that was robbed is still taken for alive by its lease.

        Who goes then leaves the in-sync set to it, and with that the messages that it has lost.
        """
        node = self._victim()
        return node if self._robbed in (None, node) or not self._is_taken_for_alive(self._robbed) else None

    def _is_taken_for_alive(self, node: SimNode | None) -> bool:
        return node is not None and not node.ready and node.node_id in self._store.image().brokers

    def _lose_power(self) -> Undo | None:
        node = self._robbable()
        if node is None:
            return None
        node.lose_power()
        return node.power_back

    def _lose_disk(self) -> Undo | None:
        node = self._robbable()
        if node is None or len(self._nodes) < 2 or not self._in_sync():
            return None
        node.lose_disk()
        return node.power_back

    def _abandon_and_rob(self) -> Undo | None:
        """Cut a broker off from its peers; when it has to go on alone, take its power."""
        node = self._robbable()
        if node is None:
            return None
        others = [other.host for other in self._nodes if other is not node]
        mend = self._cut_all([pair for other in others for pair in ((node.host, other), (other, node.host))])
        self._world.after(_LOOK_S, self._rob_when_alone, node, self._world.now + _ALONE_S_MAX)
        self._later(_ALONE_S_MAX, mend)
        return None

    def _rob_when_alone(self, node: SimNode, deadline: float) -> None:
        if self._healed or node.powerless or self._robbed not in (None, node):
            return
        if self._is_alone(node) or self._world.now >= deadline:
            self._robbed = node
            self._world.after(self._chance.uniform(*_BETWEEN_S), self._rob, node)
        else:
            self._world.after(_LOOK_S, self._rob_when_alone, node, deadline)

    def _rob(self, node: SimNode) -> None:
        may = self._robbed is node and self._knows_that_it_is_alone(node)
        if may and not self._healed and not node.powerless:
            node.lose_power()
            self._later(self._chance.uniform(*_SHORT_S), node.power_back)

    def _knows_that_it_is_alone(self, node: SimNode) -> bool:
        """Where the store lists only this broker as in sync, it must have heard of it, and so synced."""
        for topic in self._store.image().topics.values():
            for state in topic.partitions:
                if state.isr == (node.node_id,) and not node.sees(topic.name, state):
                    return False
        return True

    def _is_alone(self, node: SimNode) -> bool:
        """Whether it is the only one in sync of some partition."""
        topics = self._store.image().topics.values()
        return any(state.isr == (node.node_id,) for topic in topics for state in topic.partitions)

    def _robbable(self) -> SimNode | None:
        node = self._robbed or self._victim()
        if node.powerless or not self._knows_that_it_is_alone(node):
            return None
        self._robbed = node
        return node

    def _pause(self) -> Undo:
        node = self._victim()
        node.pause()
        return node.resume

    def _jump(self) -> None:
        node = self._victim()
        node.clock.offset_ms += self._chance.randint(*_JUMP_MS)
        self._note(f"the clock of {node.host} is off by {node.clock.offset_ms} ms")

    # -- network -----------------------------------------------------------------------------------------

    def _cut(self) -> Undo:
        one, other = self._pair()
        return self._cut_all([(one, other)])

    def _cut_both_ways(self) -> Undo:
        one, other = self._pair()
        return self._cut_all([(one, other), (other, one)])

    def _isolate(self) -> Undo:
        """From its peers; its clients still reach it, and it may or may not reach the store."""
        lonely = self._victim().host
        others = [node.host for node in self._nodes if node.host != lonely]
        if self._chance.random() < 0.5:
            others.append(STORE_HOST)
        return self._cut_all([pair for other in others for pair in ((lonely, other), (other, lonely))])

    def _cut_from_store(self) -> Undo:
        host = self._victim().host
        ways = [(host, STORE_HOST), (STORE_HOST, host)]
        return self._cut_all(ways[: self._chance.randint(1, 2)])

    def _cut_all(self, pairs: list[tuple[str, str]]) -> Undo:
        self._note("cut " + ", ".join(f"{one} > {other}" for one, other in pairs))
        for pair in pairs:
            self._network.cut(*pair)

        def mend() -> None:
            for pair in pairs:
                self._network.mend(*pair)

        return mend

    def _slow_link(self) -> Undo:
        pair = self._pair()
        self._note(f"slow {pair[0]} > {pair[1]}")
        self._network.slow_down(*pair)
        return lambda: self._network.speed_up(*pair)

    def _reset(self) -> None:
        one, other = self._pair()
        self._note(f"connections between {one} and {other} are reset")
        self._network.reset_between(one, other)

    # -- the store ---------------------------------------------------------------------------------------

    def _store_down(self) -> Undo:
        self._note("the store is down")
        self._store.down = True
        return self._store.come_back

    def _slow_store(self) -> Undo:
        self._note("the store is slow")
        self._store.slow = True
        return lambda: setattr(self._store, "slow", False)

    def _store_forgets_to_answer(self) -> Undo:
        self._note("the store does not answer always")
        self._store.lose_answers_chance = 0.3
        return lambda: setattr(self._store, "lose_answers_chance", 0.0)

    def _slow_watches(self) -> Undo:
        self._note("watches are slow")
        self._store.watch_delay_s_max = 2.0
        return lambda: setattr(self._store, "watch_delay_s_max", 0.0)

    # -- disks -------------------------------------------------------------------------------------------

    def _disk_errors(self) -> Undo:
        node, chance = self._victim(), self._chance.choice((0.02, 0.3, 1.0))
        self._note(f"the disk of {node.host} fails, {chance:.0%} of the time")
        node.disk_failed = True
        numbers = self._world.chance(f"disk-errors/{self.counts.total()}")

        def fail(operation: str, path: str) -> None:
            if operation != "read" and numbers.random() < chance:
                raise OSError(errno.EIO, "the device has failed", path)

        node.disk.fault = fail
        return lambda: setattr(node.disk, "fault", None)

    def _disk_full(self) -> Undo:
        node = self._victim()
        self._note(f"the disk of {node.host} is full")
        node.disk_failed = True

        def refuse(operation: str, path: str) -> None:
            if operation in ("append", "create", "mkdir"):
                raise OSError(errno.ENOSPC, "no space left on device", path)

        node.disk.fault = refuse
        return lambda: setattr(node.disk, "fault", None)
