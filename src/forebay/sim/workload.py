"""The workload of a story: which topics it has, and which actors write and read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.administrators import Deleter, Elector, Mover, SettingsChanger, TopicKeeper
from forebay.sim.actors.alarm_keeper import AlarmKeeper
from forebay.sim.actors.consumers.alarms import AlarmReader
from forebay.sim.actors.consumers.delayed import DelayedReader
from forebay.sim.actors.consumers.member_protocols import ClassicMember, ConsumerMember
from forebay.sim.actors.consumers.members import Member
from forebay.sim.actors.consumers.readers import Consumer, OffsetKeeper, Transformer
from forebay.sim.actors.consumers.views import FillReader, ViewReader
from forebay.sim.actors.dialects import (
    CONFLUENT,
    DIALECTS,
    JAVA,
    LIBRDKAFKA,
    MODERN,
    POLITE,
    RUDE,
    Manners,
)
from forebay.sim.actors.folding import Emptier, Folder
from forebay.sim.actors.hostile import Hostile
from forebay.sim.actors.producers import keyed
from forebay.sim.actors.producers.alarms import AlarmSetter, AlarmTransactions
from forebay.sim.actors.producers.plain import (
    IdempotentProducer,
    LatePipeliningProducer,
    NoAcksProducer,
    PipeliningProducer,
    Producer,
    RepeatingProducer,
    ShortLivedProducer,
)
from forebay.sim.actors.quotas import QuotaSetter
from forebay.sim.actors.shares.administrators import Deposer, ShareResetter
from forebay.sim.actors.shares.auditors import ShareAuditor
from forebay.sim.actors.shares.settings import chosen_rules
from forebay.sim.cast import Cast, MakeActor
from forebay.sim.models.messages import Model
from forebay.sim.plots.plot import ORDINARY, Plot
from forebay.sim.setting_choices import setting_choices
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.places import (
    ALARMS,
    ALL,
    BRIEF,
    EXACT,
    FILLED,
    FOLDED,
    FOLDED_KEYS,
    FOLDED_TO,
    GROUP_NAME,
    JOBS,
    KEYED,
    LATER,
    LOOSE,
    PLAIN,
    SHARE_GROUP_NAME,
    SHARED,
    SHOWN,
    SOURCE,
    SURE,
    TARGET,
)
from forebay.sim.world.virtual_time import World

_MEMBERS = 3
_ENSEMBLES = 3
_VALUE_BYTES = (0, 0, 1_000)
"""Large values in some stories make large logs, which take long to scan."""
_ADMINISTRATORS = 3
_SHARE_MEMBERS = 3
_SHARE_CHANCE = 0.67
"""The chance of a share group in a story in which messages last."""
_ALARMS_CHANCE = 0.3
"""The chance of messages with their own delays."""
_DELAY_CHANCE = 0.25
"""The chance of a topic with delayed messages."""
_VIEWS_CHANCE = 0.25
_FILLS_CHANCE = 0.2
_RESIZES = ((FOLDED_TO,), (FOLDED_TO, len(FOLDED)), (FOLDED_TO, len(FOLDED), FOLDED_TO))
_FOLDS_CHANCE = 0.2
_UNCOMMITTED_CHANCE = 0.3
"""The chance of transactions for a share group that gets all messages, including aborted ones."""


def _manners(chance: Random) -> Manners:
    return chance.choice((POLITE, RUDE))


class Workload(Cast):
    def __init__(
        self,
        world: World,
        network: SimNetwork,
        model: Model,
        bootstrap: Sequence[Address],
        plot: Plot = ORDINARY,
    ) -> None:
        chosen = world.chance("values").choice(_VALUE_BYTES)
        value_bytes = chosen if plot.value_bytes is None else plot.value_bytes
        super().__init__(world, network, model, bootstrap, value_bytes=value_bytes)
        self._plot = plot
        self._shared: list[TopicPartition] = []
        """The partitions that the members of the group share, if there is one in this story."""
        self.has_share_group = False
        self.delayed = [LATER] if self._has("delays", _DELAY_CHANCE) else []
        """Partitions with delayed messages, if there are such in this story."""
        self.folded = FOLDED if self._has("folds", _FOLDS_CHANCE) else []
        """Partitions of a topic that gets fewer of them, if there is one in this story."""
        self.folded_keys = FOLDED_KEYS if "key-folds" in (plot.cast or ()) else []
        self.shown = SHOWN if self._has("views", _VIEWS_CHANCE) else []
        """Partitions of views, if there are such in this story."""
        keeps = PLAIN in model.lasting or len(bootstrap) == 1
        self.filled = FILLED if self._has("fills", _FILLS_CHANCE) and keeps else []
        """Partitions of materialized views. Not where a source may lose what was copied: it stops filling."""
        self.has_alarms = self._has("alarms", _ALARMS_CHANCE)
        """True if there are messages with their own delays."""
        model.alarms.shares_keys = model.alarms.are_deleted = plot.short_alarms
        model.shares.rules = plot.share_rules or chosen_rules(world.chance("shares"))
        self.latest_ms: Callable[[str], int] = lambda _host: 0
        """The latest time that the clock of a host has shown."""
        self.deafen: Callable[[str, float], None] = lambda _host, _seconds: None
        """Keep news of the cluster from a host for some seconds."""

    @property
    def own_partitions(self) -> list[TopicPartition]:
        """The partitions of topics that are not in every story."""
        return [*self.delayed, *self.folded]

    def _has(self, name: str, chance: float) -> bool:
        """True if actors take part that need topics of their own."""
        cast = self._plot.cast
        return self._world.chance(name).random() < chance if cast is None else name in cast

    def start(self) -> None:
        chance = self._world.chance("cast")
        if self._plot.cast is None:
            self._add_some(chance)
        else:
            self._add_named(self._plot.cast, chance)

    def _add_some(self, chance: Random) -> None:
        """Each story has only some of the actors: with all of them less would happen in the same time."""
        lasting = SOURCE in self._model.lasting
        ensembles = self._ensembles()
        if not lasting:  # messages that it has read may get lost
            del ensembles["transformer"]
        self._add_plain(chance)
        self.has_share_group = lasting and chance.random() < _SHARE_CHANCE
        if self.has_share_group:
            self._add_share_members(chance)
        for name in chance.sample(sorted(ensembles), _ENSEMBLES - self.has_share_group):
            ensembles[name](chance)
        self._add_readers(chance)
        if self.delayed:
            self._add_delayed(self._world.chance("delayed"))
        if self.shown:
            self._add_view_readers(self._world.chance("view-readers"))
        if self.filled:
            self._add_fill_reader(self._world.chance("fill-reader"))
        if self.has_alarms:
            self._add_alarms(self._world.chance("alarm cast"))
        if self.folded:
            self._add_folds(self._world.chance("folded"))
        if self.has_share_group:
            self.add("deposer", self._deposer())
        kinds = self._administrators()
        count = min(_ADMINISTRATORS - self.has_share_group, len(kinds))
        for name in chance.sample(sorted(kinds), count):
            self.add(name, kinds[name])

    def _add_named(self, cast: Sequence[str], chance: Random) -> None:
        self.has_share_group = "shares" in cast
        ensembles = self._ensembles() | {
            "plain": self._add_plain,
            "shares": self._add_share_members,
            "delays": self._add_delayed,
            "views": self._add_view_readers,
            "fills": self._add_fill_reader,
            "alarms": self._add_alarms,
            "folds": self._add_folds,
            "key-folds": self._add_key_folds,
        }
        administrators = self._administrators() | {
            "deposer": self._deposer(),
            "quotas": QuotaSetter,
            "end-deleter": partial(Deleter, at=BRIEF, to_the_end=0.5),
            "loose-deleter": partial(Deleter, at=LOOSE, to_the_end=0.5),
        }
        for name in cast:
            if name in ensembles:
                ensembles[name](chance)
            else:
                self.add(name, administrators[name])
        self._add_readers(chance)

    def _ensembles(self) -> dict[str, Callable[[Random], None]]:
        return {
            "exact": self._add_idempotent,
            "short-lived": self._add_short_lived,
            "loose": self._add_loose,
            "transactions": self._add_transactional,
            "transformer": self._add_transformer,
            "keyed": self._add_writers,
            "group": self._add_members,
        }

    def _add_readers(self, chance: Random) -> None:
        self.add("reader", partial(Consumer, partitions=ALL, committed=False))
        committed = partial(Consumer, partitions=SURE, committed=True)
        self.add("committed-reader", committed, chance.choice(DIALECTS))

    def _add_view_readers(self, chance: Random) -> None:
        for name, is_committed in (("view-reader", False), ("committed-view-reader", True)):
            reader = partial(ViewReader, partitions=self.shown, committed=is_committed)
            self.add(name, reader, chance.choice(DIALECTS))

    def _add_fill_reader(self, chance: Random) -> None:
        reader = partial(FillReader, partitions=self.filled, committed=False)
        self.add("fill-reader", reader, chance.choice(DIALECTS))

    def _add_alarms(self, chance: Random) -> None:
        for name in ("alarmer-a", "alarmer-b"):
            setter = partial(AlarmSetter, latest_ms=self.any_latest_ms)
            self.add(name, setter, chance.choice(DIALECTS), _manners(chance))
        setter_tx = partial(AlarmTransactions, latest_ms=self.any_latest_ms)
        self.add("alarmer-tx", setter_tx, chance.choice((MODERN, CONFLUENT, JAVA)), RUDE)
        reader = partial(AlarmReader, latest_ms=self.any_latest_ms)
        self.add("alarm-reader", reader, chance.choice(DIALECTS))
        if self._plot.cast is not None:
            self.add("alarm-keeper", partial(AlarmKeeper, latest_ms=self.any_latest_ms))

    def any_latest_ms(self) -> int:
        """The latest time that any broker's clock has shown."""
        return max(self.latest_ms(host) for host, _ in self._bootstrap)

    def _add_plain(self, chance: Random) -> None:
        self._add("producer", Producer, [PLAIN, BRIEF], chance.choice(DIALECTS), _manners(chance))

    def _add_idempotent(self, chance: Random) -> None:
        kind = chance.choice((IdempotentProducer, PipeliningProducer))
        self._add("idempotent-a", kind, [*EXACT, SOURCE], chance.choice(DIALECTS), _manners(chance))
        self._add("idempotent-b", PipeliningProducer, EXACT, chance.choice(DIALECTS), RUDE)

    def _add_short_lived(self, chance: Random) -> None:
        for name in ("short-lived-a", "short-lived-b"):
            self._add(name, ShortLivedProducer, EXACT, chance.choice(DIALECTS), POLITE)

    def _add_loose(self, chance: Random) -> None:
        self._add("loose-1", RepeatingProducer, [LOOSE, PLAIN], chance.choice(DIALECTS), _manners(chance))
        self._add("loose-0", NoAcksProducer, [LOOSE], chance.choice(DIALECTS))

    def _add_transactional(self, chance: Random) -> None:
        for name, partitions in (("transactional-a", [*EXACT, SOURCE]), ("transactional-b", EXACT)):
            self._add_transactions(name, partitions, chance)

    def _add_transactions(self, name: str, partitions: Sequence[TopicPartition], chance: Random) -> None:
        kind, dialects, manners = chance.choice(self._plot.transactional)
        self._add(name, kind, partitions, chance.choice(dialects), manners)

    def _add_transformer(self, chance: Random) -> None:
        dialect = chance.choice((MODERN, JAVA, CONFLUENT))  # it has to ask for stable offsets
        self._add("spring", IdempotentProducer, [SOURCE], chance.choice(DIALECTS), _manners(chance))
        self.add("transformer", partial(Transformer, source=SOURCE, target=TARGET), dialect)

    def _add_writers(self, chance: Random) -> None:
        self._add("writer", keyed.KeyedProducer, [KEYED], chance.choice(DIALECTS), RUDE)
        self._add(
            "writer-tx", keyed.KeyedTransactions, [KEYED], chance.choice((MODERN, CONFLUENT, JAVA)), RUDE
        )
        self.add("hostile", partial(Hostile, at=KEYED, keys=[b"writer/0", b"writer-tx/1"]))

    def _add_members(self, chance: Random) -> None:
        self.add("keeper", partial(OffsetKeeper, partitions=EXACT), chance.choice(DIALECTS))
        protocol = chance.choice((ClassicMember, ConsumerMember))
        mortal = chance.randint(0, _MEMBERS)  # no member, if it is the number of members
        for number in range(_MEMBERS):
            member = partial(protocol, group=GROUP_NAME, partitions=SHARED, mortal=number == mortal)
            actor = self.add(f"member-{number}", member)
            assert isinstance(actor, Member)
            actor.nap_chance = self._plot.nap_chance
        self._shared = SHARED

    def _add_share_members(self, chance: Random) -> None:
        rules = self._model.shares.rules
        kind = chance.choice((IdempotentProducer, PipeliningProducer))
        if rules.loses_records:
            kind = RepeatingProducer
        self._add("employer", kind, JOBS, chance.choice(DIALECTS), _manners(chance))
        has_transactions = rules.is_committed or chance.random() < _UNCOMMITTED_CHANCE
        if has_transactions and not rules.loses_records:
            self._add_transactions("employer-tx", JOBS, chance)
        for number in range(_SHARE_MEMBERS):
            worker = partial(self._plot.worker, group=SHARE_GROUP_NAME, partitions=JOBS)
            manners = _manners(chance)
            if not rules.locks_run_out:  # a connection left open would keep its locks
                manners = replace(manners, reconnect_chance=0.0)
            self.add(f"worker-{number}", worker, MODERN, manners)
        self.add("share-auditor", partial(ShareAuditor, group=SHARE_GROUP_NAME, partitions=JOBS))
        if rules.has_resets:
            self.add("resetter", partial(ShareResetter, group=SHARE_GROUP_NAME, partitions=JOBS))

    def _add_delayed(self, chance: Random) -> None:
        self._add("delayer", IdempotentProducer, self.delayed, chance.choice(DIALECTS), _manners(chance))
        self._add_transactions("delayer-tx", self.delayed, chance)
        reader = partial(DelayedReader, latest_ms=self.latest_ms)
        self.add("delayed-reader", reader, chance.choice(DIALECTS))

    def _add_folds(self, chance: Random) -> None:
        kind = chance.choice((IdempotentProducer, PipeliningProducer))
        # Others lower the count, and send nothing more to partitions that are gone.
        dialects = (LIBRDKAFKA,) if self._plot.empties else DIALECTS
        self._add("folded-a", kind, self.folded, chance.choice(dialects), _manners(chance))
        self._add("folded-b", PipeliningProducer, self.folded[1:], chance.choice(dialects), RUDE)
        if self._plot.resizes is not None or self._plot.empties:
            closing = self.folded[FOLDED_TO:]
            late = self._add("folded-late", LatePipeliningProducer, closing, chance.choice(dialects), RUDE)
            if self._plot.empties:
                late.repeats_within_s = int(self._plot.settings["forebay.fold.grace.ms"]) / 1000
            self._add_transactions("closing-tx", closing, chance)
        self._add("folded-c", Producer, self.folded, chance.choice(dialects), _manners(chance))
        self._add_transactions("folded-tx", self.folded, chance)
        reader = partial(Consumer, partitions=self.folded, committed=chance.random() < 0.5)
        self.add("folded-reader", reader, chance.choice(DIALECTS))
        if self._plot.empties:
            self.add("folded-keeper", partial(OffsetKeeper, partitions=self.folded), chance.choice(DIALECTS))
            self.add("emptier", partial(Emptier, topic=self.folded[0][0], counts=()))
            return
        counts = self._plot.resizes or self._world.chance("resizes").choice(_RESIZES)
        self.add("folder", partial(Folder, topic=self.folded[0][0], counts=counts))

    def _add_key_folds(self, chance: Random) -> None:
        closing = self.folded_keys[FOLDED_TO:]
        for name, places in (("key-writer-a", self.folded_keys), ("key-writer-b", closing)):
            self._add(name, keyed.FoldedKeyProducer, places, chance.choice(DIALECTS), RUDE)
        for name in ("key-writer-tx", "key-writer-ty"):
            dialect = chance.choice((MODERN, CONFLUENT, JAVA))
            self._add(name, keyed.FoldedKeyTransactions, closing, dialect, RUDE)
        self.add("key-folder", partial(Folder, topic=self.folded_keys[0][0], counts=(FOLDED_TO,)))

    def _administrators(self) -> dict[str, MakeActor]:
        brokers, lasting = len(self._bootstrap), SOURCE in self._model.lasting
        sure = [*SURE, *self.delayed, *self.folded, *self.folded_keys, *([ALARMS] if self.has_alarms else [])]
        kinds: dict[str, MakeActor] = {"topic-keeper": TopicKeeper, "deleter": partial(Deleter, at=BRIEF)}
        if brokers > 1:
            kinds |= {
                "mover": partial(Mover, partitions=sure, favourite=KEYED, brokers=brokers),
                "elector": partial(Elector, partitions=sure, loose=LOOSE),
                "settings-changer": partial(SettingsChanger, choices=setting_choices(lasting=lasting)),
            }
        return kinds

    def _deposed(self) -> list[TopicPartition]:
        if self.has_share_group:
            return JOBS
        if self.has_alarms and self._plot.cast is not None:
            return [ALARMS]
        return self.folded_keys or [*EXACT, *self.folded, *self.filled]

    def _deposer(self) -> MakeActor:
        return partial(
            Deposer,
            partitions=self._deposed(),
            deafen=self.deafen,
            pause_s=self._plot.deposing_pause_s,
        )

    def unshared(self) -> list[TopicPartition]:
        """The partitions that no living member of the group owns."""
        return self._model.groups.unowned(GROUP_NAME, self._shared)
