"""One simulated story: a cluster and its clients run through faults, then the cluster must recover.

The end is always the same. Every fault is undone, the clients finish what they have begun, and within a
bounded time all replicas must be in sync and hold the same messages, with all that were acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial

from forebay.broker.record_moves.journal import MOVES_TOPIC
from forebay.coordination.keys import Keys
from forebay.lazy import dataclass
from forebay.sim.actors.consumers.views import LastFillReader, ViewMaker
from forebay.sim.actors.final_checks import Found, LastAuditor, LastReader
from forebay.sim.actors.producers.keyed import FoldedKeysAuditor, KeyedAuditor
from forebay.sim.actors.shares.auditors import LastWorker
from forebay.sim.actors.topic_maker import TopicMaker
from forebay.sim.broker_settings import VERDICTS, common_settings, own_settings
from forebay.sim.faults.faults import Faults
from forebay.sim.faults.moves import ENDING, MoveFaults
from forebay.sim.faults.scene import Scene
from forebay.sim.invariants.broker_invariants import Invariants
from forebay.sim.invariants.deleted_logs import DeletedLogs
from forebay.sim.invariants.early_fencing import Verdicts
from forebay.sim.invariants.tiers import TierInvariants
from forebay.sim.models.facts import Counts
from forebay.sim.models.messages import Model
from forebay.sim.models.views import wrong_views
from forebay.sim.plots.all_plots import PLOTS
from forebay.sim.plots.plot import ORDINARY
from forebay.sim.trace_log import logs_to
from forebay.sim.workload import Workload
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.node import SimNode
from forebay.sim.world.objects import SimObjects
from forebay.sim.world.places import (
    ALARMS,
    ALL,
    DEAD_LETTER_TOPIC,
    FILLS,
    FOLDED,
    FOLDED_KEYS,
    FOLDED_TO,
    JOBS,
    KEYED,
    LATER,
    LATER_DELAY_MS,
    SHARE_GROUP_NAME,
    SURE,
    TOPICS,
    VIEWS,
)
from forebay.sim.world.store import CLUSTER, SimStore
from forebay.sim.world.virtual_time import World

_START_S_MAX = 60.0
_BURST_S = (0.01, 0.4)
_BURST_CHANCE = 0.35
_HEAL_S_MAX = 120.0
_PEACE_S = 1.0
_CHECK_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The input of a simulation. The same story always runs the same way."""

    seed: int
    steps: int = 12
    brokers: int = 3
    faults: bool = True
    plot: str | None = None
    """A name of PLOTS; None: about everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    story: Story
    trace_hash: str
    breach: str | None
    virtual_s: float
    events: int
    counts: Counts
    faults: dict[str, int] = field(default_factory=dict)
    recent: tuple[str, ...] = ()
    """The last lines of the trace."""


def simulate(story: Story, *, on_line: Callable[[str], None] | None = None) -> Ending:
    world = World(story.seed, on_line=on_line)
    simulation = Simulation(world, story)
    with logs_to(world):
        simulation.run()
    return Ending(
        story=story,
        trace_hash=world.trace_hash,
        breach=None if world.breach is None else str(world.breach),
        virtual_s=world.now,
        events=world.events_count,
        counts=replace(simulation.model.counts, verdicts=simulation.verdicts.count),
        faults=dict(simulation.faults.counts),
        recent=tuple(world.recent),
    )


class Simulation:
    def __init__(self, world: World, story: Story) -> None:
        self.world = world
        self.story = story
        self.network = SimNetwork(world)
        self.store = SimStore(world, self.network)
        self.objects = SimObjects(world)
        plot = self._plot = ORDINARY if story.plot is None else PLOTS[story.plot]
        brokers = self._brokers = max(story.brokers, plot.brokers)
        # A plot says so if brokers may be counted as dead before their leases end.
        by_lease = {} if story.plot is None else {VERDICTS: "0"}
        settings = {**common_settings(world, brokers), **by_lease, **plot.settings}
        lasting = (
            [*SURE, LATER, ALARMS, *FOLDED, (DEAD_LETTER_TOPIC, 0)]
            if brokers > 1 and settings["min.insync.replicas"] != "1"
            else []
        )
        self.model = Model(world.fail, lasting)
        self.nodes = [
            SimNode(
                world, self.network, self.store, self.objects, number, own_settings(world, number) | settings
            )
            for number in range(1, brokers + 1)
        ]
        self.invariants = Invariants(world, self.nodes, self.store, lasting)
        self.verdicts = Verdicts(
            Keys(CLUSTER),
            self.network.refusals,
            _Brokers(self.nodes),
            world,
            per_minute_max=int(settings[VERDICTS]),
        )
        self.store.on_txn = self.verdicts.written
        self.store.on_revoke = self.verdicts.revoked
        self.deleted_logs = DeletedLogs(Keys(CLUSTER), self.nodes, world.fail)
        self.store.on_events = self.deleted_logs.changed
        self.store.on_restore = self.deleted_logs.restored
        bootstrap = [node.address for node in self.nodes]
        self.workload = Workload(world, self.network, self.model, bootstrap, plot)
        self.workload.on_acknowledged = self.invariants.acknowledged
        self.workload.quotas_of = self.invariants.quotas_of
        self.workload.deafen = self.store.deafen
        self.workload.latest_ms = lambda host: self._node(host).clock.latest_ms()
        self.model.shares.term_of = self.invariants.term
        self.scene = Scene(world, self.network, self.store, self.nodes, self.invariants.in_sync)
        self.model.shares.may_be_damaged = self.scene.damaged.__contains__
        self.scene.one_is_enough = brokers > 1 and not lasting
        self.scene.fault_s = plot.fault_s
        self.faults = Faults(self.scene, self.objects, plot.faults)
        self.tiers = TierInvariants(world, self.nodes, self.objects) if plot.tiered else None
        self._chance = world.chance("story")

    def _node(self, host: str) -> SimNode:
        return next(node for node in self.nodes if node.host == host)

    def run(self) -> None:
        try:
            self._begin()
            if self.story.faults:
                self._suffer()
            self._heal()
            self._verify()
        finally:
            self.end()

    def end(self) -> None:
        for node in self.nodes:
            node.kill()
        for actor in self.workload.actors:
            actor.client.loop.kill()

    # -- chapters ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for node in self.nodes:
            node.start()
        self._wait("all brokers are ready", _START_S_MAX, lambda: all(node.ready for node in self.nodes))
        factor = min(3, self._brokers)
        topics = TOPICS | {topic: 1 for topic, _ in self.workload.delayed}
        if self.workload.has_alarms:
            topics |= {ALARMS[0]: 1}
        topics |= {topic: len(FOLDED) for topic, _ in self.workload.folded}
        topics |= {topic: len(FOLDED_KEYS) for topic, _ in self.workload.folded_keys}
        make = partial(TopicMaker, replication_factor=factor, topics=topics, tiered=self._plot.tiered)
        maker = self.workload.add("maker", make)
        self._wait("the topics are made", _START_S_MAX, lambda: maker.done)
        if self.workload.shown:
            make_views = partial(ViewMaker, views=VIEWS, materialize=False)
            view_maker = self.workload.add("view-maker", make_views)
            self._wait("the views are made", _START_S_MAX, lambda: view_maker.done)
        if self.workload.filled:
            make_fills = partial(ViewMaker, views=FILLS, materialize=True)
            fill_maker = self.workload.add("fill-maker", make_fills)
            self._wait("the materialized views are made", _START_S_MAX, lambda: fill_maker.done)
        self.workload.start()
        if self.story.faults and self._has_moves:
            MoveFaults(self.scene, JOBS, MOVES_TOPIC, (DEAD_LETTER_TOPIC, 0)).begin()
        if self.story.faults and self.workload.folded_keys:
            MoveFaults(self.scene, FOLDED_KEYS[FOLDED_TO:], MOVES_TOPIC, (MOVES_TOPIC, 0)).begin()
        self.world.after(_CHECK_S, self._check)
        self._live(_PEACE_S)

    @property
    def _has_moves(self) -> bool:
        """True if brokers move dead letters, and may end in the middle of it."""
        has_letters = self.workload.has_share_group and self.model.shares.rules.has_dead_letters
        return has_letters and (self._plot.faults is None or ENDING in self._plot.faults)

    def _live(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)

    def _check(self) -> None:
        self.invariants.check()
        if self.tiers is not None:
            self.tiers.check()
        self.faults.keep_running()
        self.world.after(_CHECK_S, self._check)

    def _suffer(self) -> None:
        for _ in range(self.story.steps):
            burst = self._chance.random() < _BURST_CHANCE
            self._live(self._chance.uniform(*(_BURST_S if burst else self._plot.step_s)))
            if self.world.breach is not None:
                return
            self.faults.step()

    def _heal(self) -> None:
        self.faults.heal()
        self._wait("every replica is in sync again", _HEAL_S_MAX, self._recovered)
        self.workload.calm()
        self._live(_PEACE_S)
        self.faults.set_clocks()
        self._wait("every partition has a member", _HEAL_S_MAX, lambda: not self.workload.unshared())
        if self.workload.delayed or self.workload.has_alarms or self._plot.empties:
            self.faults.set_clocks_right()
        self.workload.stop()
        self._wait("every client has finished", _HEAL_S_MAX, lambda: self.workload.done)
        if self.workload.delayed:
            self._live(LATER_DELAY_MS / 1000)  # so that messages that nobody waited for are due, too
        if self.workload.has_alarms:
            self._wait("nothing waits any more", _HEAL_S_MAX, self._all_rang)
        if self.workload.folded_keys:
            self._wait("the closed partitions are copied", _HEAL_S_MAX, self._all_copied)
        self._wait("every replica has the same end", _HEAL_S_MAX, self.invariants.settled)
        self._wait("every compacted log is clean", _HEAL_S_MAX, self.invariants.compacted)
        for left in self.deleted_logs.left_over():
            self.world.fail(f"{left} was put aside, and the store says what became of its partition")

    def _all_rang(self) -> bool:
        """True if the index of every replica has all of the log, and nothing waits or is to be repeated."""
        held = [partition for node in self.nodes if (partition := node.partition(ALARMS)) is not None]
        return all(
            partition.delayed_messages is not None
            and partition.delayed_messages.index is not None
            and partition.delayed_messages.index.position >= partition.high_watermark
            and partition.delayed_messages.pending == 0
            and partition.delayed_messages.index.out_of_order == 0
            for partition in held
        )

    def _all_copied(self) -> bool:
        folding = self.store.image().topics[FOLDED_KEYS[0][0]].record.folding
        return folding is not None and folding.next_copy is None

    def _recovered(self) -> bool:
        return self.faults.over and self.invariants.converged()

    def _wait(self, what: str, seconds_max: float, enough: Callable[[], bool]) -> None:
        deadline = self.world.now + seconds_max
        while self.world.breach is None and not enough():
            if self.world.now >= deadline:
                self.world.fail(f"not within {seconds_max:.0f} s: {what}; {self._state()}")
                return
            self.world.run_until(min(self.world.now + _CHECK_S, deadline))

    def _state(self) -> str:
        parts = [
            f"unfinished: {self.workload.unfinished()}",
            f"unshared: {self.workload.unshared()}",
            self.invariants.describe(),
        ]
        return "; ".join(parts)

    def _verify(self) -> None:
        if self.world.breach is not None:
            return
        self.invariants.check()
        if (tiers := self.tiers) is not None:
            self._wait("every object has an owner", _HEAL_S_MAX, lambda: not tiers.orphans())
        found, shown, removed = Found(), Found(), self.model.folds.removed
        found.stored.update(removed.stored)
        found.visible.update(removed.visible)
        left = [at for at in (*ALL, *self.workload.own_partitions) if at not in removed.positions]
        readers = [
            self.workload.add(
                "last-reader",
                partial(LastReader, found=found, partitions=left),
            ),
            self.workload.add(
                "last-view-reader", partial(LastReader, found=shown, partitions=self.workload.shown)
            ),
            self.workload.add("last-auditor", LastAuditor),
            self.workload.add("keyed-auditor", partial(KeyedAuditor, at=KEYED)),
        ]
        if self.workload.folded_keys:
            auditor = partial(FoldedKeysAuditor, partitions=FOLDED_KEYS[:FOLDED_TO])
            readers.append(self.workload.add("folded-keys-auditor", auditor))
        if self.workload.has_share_group:
            worker = partial(LastWorker, group=SHARE_GROUP_NAME, partitions=JOBS, letters=found.letters)
            readers.append(self.workload.add("last-worker", worker))
        self._wait("all is as told", _HEAL_S_MAX, lambda: all(reader.done for reader in readers))
        if self.workload.filled and self.world.breach is None:
            reads = partial(LastFillReader, sources=found.visible, partitions=self.workload.filled)
            fill_reader = self.workload.add("last-fill-reader", reads)
            self._wait("the materialized views hold everything", _HEAL_S_MAX, lambda: fill_reader.done)
        if self.world.breach is None:
            self.model.finish(found.stored, found.visible, found.starts, found.letters)
            wrong = wrong_views(shown.stored, found.stored, "stored")
            for problem in wrong + wrong_views(shown.visible, found.visible, "visible"):
                self.world.fail(problem)


class _Brokers:
    """The nodes as the model of early fencing sees them."""

    def __init__(self, nodes: Sequence[SimNode]) -> None:
        self._nodes = {node.host: node for node in nodes}

    def sure_epoch(self, host: str) -> int | None:
        broker = self._nodes[host].broker
        return broker.lease.epoch if broker is not None and broker.lease.valid() else None

    def life(self, host: str) -> int | None:
        node = self._nodes[host]
        return None if node.broker is None else node.starts
