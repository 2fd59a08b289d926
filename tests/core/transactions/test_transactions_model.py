"""Random clients, zombies among them, against a coordinator that crashes: what no order of events may break.

The partitions are models that obey markers as partitions do. Clients behave as real ones: one request at a
time, repeated when no answer comes. The coordinator's log loses its uncommitted tail at any point. At the end
all that is open runs out of time, and then each transaction must have ended everywhere in one way, and in the
way that its client was told. A seed that fails replays exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from forebay.config import TransactionsConfig
from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions.shard import WriteMarkers
from forebay.core.transactions.state import (
    EPOCH_MAX,
    TRANSITIONS,
    Identity,
    State,
    Transaction,
    read_key,
    read_value,
    record_of,
)
from forebay.errors import ErrorCode
from support.machines.transaction_log import NOBODY, Coordinator
from support.machines.walks import seeds

NAMES = ("t", "u")
PARTITIONS: tuple[TopicPartition, ...] = (("a", 0), ("a", 1), ("__consumer_offsets", 0))
TIMEOUT_MS = 5_000
EXPIRATION_MS = 30_000
CLIENTS = 3
"""How many of the clients are active; the older ones are forgotten, their transactions left open."""


@dataclass
class Partition:
    """What a partition knows of producers: their epochs, and messages whose fate is open."""

    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Attempt]] = field(default_factory=dict)

    def append(self, who: Identity, attempt: Attempt) -> bool:
        producer_id, epoch = who
        if epoch < self.epochs.get(producer_id, -1):
            return False
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, []).append(attempt)
        return True

    def mark(self, markers: WriteMarkers) -> None:
        written_at = self.epochs.get(markers.producer_id, -1)
        messages = self.open.pop(markers.producer_id, [])
        assert markers.producer_epoch >= written_at, "a marker from the past"
        if messages:
            raised = markers.transaction_version == 2
            assert markers.producer_epoch == written_at + raised, "a marker for another epoch"
        self.epochs[markers.producer_id] = markers.producer_epoch
        for attempt in messages:
            attempt.fates.add(markers.commit)


@dataclass
class Attempt:
    """One transaction as its client sees it."""

    messages: int = 0
    fates: set[bool] = field(default_factory=set)
    told: bool | None = None
    companion: Attempt | None = None
    """Was to be committed in one step with this one."""


@dataclass
class Client:
    name: str
    raises_epoch: bool
    who: Identity = NOBODY
    added: set[TopicPartition] = field(default_factory=set)
    attempt: Attempt | None = None
    ask: Callable[[], int] | None = None
    """How to send the request under way again."""
    hear: Callable[[Any], None] | None = None
    ticket: int = 0
    gone: bool = False


class World:
    def __init__(self, random: Random, *, pairs: bool = False) -> None:
        """With `pairs`, transactions are mostly committed two at a time."""
        self.pairs = pairs
        config = TransactionsConfig(id_expiration_ms=EXPIRATION_MS, abort_interval_ms=100)
        self.random = random
        self.coordinator = Coordinator(config=config, commits_at_once=False, writes_markers=False)
        self.partitions = {at: Partition() for at in PARTITIONS}
        self.clients: list[Client] = []
        self.attempts: list[Attempt] = []
        self.under_way: list[tuple[WriteMarkers, list[TopicPartition]]] = []
        self._somebody_was_here(random.choice([0, EPOCH_MAX - 5, EPOCH_MAX - 2]))

    def _somebody_was_here(self, epoch: int) -> None:
        """Producers that came often have few epochs left."""
        txn = Transaction(
            transactional_id="t",
            producer_id=50,
            producer_epoch=epoch,
            timeout_ms=TIMEOUT_MS,
            state=State.EMPTY,
            last_update_ms=self.coordinator.now.wall_ms,
        )
        self.coordinator.log.append([record_of(txn)])
        self.coordinator.crash(1)

    def live(self, steps: int) -> None:
        actions = {
            self.a_client_comes: 2,
            self.a_client_raises_its_epoch: 1,
            self.a_client_adds_a_partition: 30,
            self.a_client_writes: 40,
            self.a_client_ends_its_transaction: 1 if self.pairs else 10,
            self.two_clients_commit_together: 40 if self.pairs else 0,
            self.a_client_asks_again: 15,
            self.the_log_is_committed: 50,
            self.markers_are_written: 15,
            self.time_passes: 5,
            self.the_coordinator_crashes: 5,
        }
        for action in self.random.choices(list(actions), list(actions.values()), k=steps):
            action()

    # -- clients ----------------------------------------------------------------------------------------

    def _send(self, client: Client, ask: Callable[[], int], hear: Callable[[Any], None]) -> None:
        client.ask, client.hear = ask, hear
        client.ticket = ask()

    def _hear_all(self) -> None:
        """Give the answers that may be given; the others are never heard again."""
        for client in self.clients:
            response = self.coordinator.take(client.ticket)
            if response is not None and client.ask is not None and client.hear is not None:
                hear, client.ask = client.hear, None
                hear(response)
        self.coordinator.answers.clear()
        while self.coordinator.markers:
            markers = self.coordinator.markers.popleft()
            self.under_way.append((markers, list(markers.partitions)))

    def _failed(
        self, client: Client, error: int, again: Callable[[], int], hear: Callable[[Any], None]
    ) -> bool:
        """Whether there is nothing more to hear: the client tries again, or is gone."""
        if error == ErrorCode.NONE:
            return False
        if error == ErrorCode.CONCURRENT_TRANSACTIONS:
            client.ask, client.hear, client.ticket = again, hear, 0
        else:
            assert error in (
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                ErrorCode.INVALID_TXN_STATE,
            )
            client.gone = True
        return True

    def _idle(self) -> Client | None:
        """One of the newest clients, if it is ready for its next request."""
        client = self.random.choice(self.clients[-CLIENTS:]) if self.clients else None
        if client is None or client.ask is not None or client.gone or client.who == NOBODY:
            return None
        return client

    def a_client_comes(self) -> None:
        client = Client(self.random.choice(NAMES), not self.pairs and self.random.random() < 0.5)
        self.clients.append(client)
        self._init(client, NOBODY)

    def a_client_raises_its_epoch(self) -> None:
        client = self._idle()
        if client is not None and client.attempt is None:
            self._init(client, client.who)

    def _init(self, client: Client, expected: Identity) -> None:
        def ask() -> int:
            return self.coordinator.ask_init(client.name, expected, timeout_ms=TIMEOUT_MS)

        def hear(response: Any) -> None:
            if not self._failed(client, response.error_code, ask, hear):
                client.who = response.producer_id, response.producer_epoch
                client.added, client.attempt = set(), None

        self._send(client, ask, hear)

    def a_client_adds_a_partition(self) -> None:
        client, at = self._idle(), self.random.choice(PARTITIONS)
        if client is None:
            return
        who, version = client.who, 5 if client.raises_epoch else 3

        def ask() -> int:
            if at[0] == "__consumer_offsets":
                return self.coordinator.ask_add_offsets(client.name, who, at[1])
            return self.coordinator.ask_add(client.name, who, at, version=version)

        def hear(response: Any) -> None:
            if not self._failed(client, _add_error(response), ask, hear):
                client.added.add(at)
                if client.attempt is None:
                    client.attempt = Attempt()
                    self.attempts.append(client.attempt)

        self._send(client, ask, hear)

    def a_client_writes(self) -> None:
        client = self._idle()
        if client is None or client.attempt is None:
            return
        at = self.random.choice(sorted(client.added))
        error = self.coordinator.shard.verify_partition(client.name, client.who, at)
        if error != ErrorCode.NONE and self.random.random() < 0.5:
            return  # the other half stands for partitions that have asked too early
        if self.partitions[at].append(client.who, client.attempt):
            client.attempt.messages += 1

    def a_client_ends_its_transaction(self) -> None:
        client = self._idle()
        if client is None or (client.attempt is None and not client.raises_epoch):
            return
        attempt, who, version = client.attempt, client.who, 5 if client.raises_epoch else 3
        commit = attempt is not None and self.random.random() < 0.7

        def ask() -> int:
            return self.coordinator.ask_end(client.name, who, commit=commit, version=version)

        def hear(response: Any) -> None:
            if self._failed(client, response.error_code, ask, hear):
                return
            if attempt is not None:
                attempt.told = commit
            if client.raises_epoch:
                client.who = response.producer_id, response.producer_epoch
                assert client.who != who
            assert client.who[1] < EPOCH_MAX
            client.added, client.attempt = set(), None

        self._send(client, ask, hear)

    def two_clients_commit_together(self) -> None:
        """One of them asks for both. If that is refused, each transaction runs out of time."""
        able = [each for each in self.clients[-CLIENTS:] if each.ask is None and not each.gone]
        able = [each for each in able if each.attempt is not None and not each.raises_epoch]
        if len({each.name for each in able}) < 2:
            return
        one = self.random.choice(able)
        other = self.random.choice([each for each in able if each.name != one.name])
        first, second = one.attempt, other.attempt
        assert first is not None and second is not None
        first.companion = second
        members = (one.name, one.who), (other.name, other.who)
        other.gone = True

        def ask() -> int:
            return self.coordinator.ask_end_together(*members, commit=True)

        def hear(response: Any) -> None:
            errors = (response.error_code, *response.further_error_codes)
            assert ErrorCode.CONCURRENT_TRANSACTIONS not in errors
            if any(errors):
                one.gone = True
                return
            first.told = second.told = True
            one.added, one.attempt = set(), None

        self._send(one, ask, hear)

    def a_client_asks_again(self) -> None:
        client = self.random.choice(self.clients[-CLIENTS:]) if self.clients else None
        if client is not None and client.ask is not None and not client.gone:
            client.ticket = client.ask()

    # -- the world --------------------------------------------------------------------------------------

    def the_log_is_committed(self) -> None:
        coordinator = self.coordinator
        batches = self.random.choice([1, 2, len(coordinator.log)])
        coordinator.commit(min(coordinator.committed + batches, len(coordinator.log)))
        self._hear_all()

    def markers_are_written(self) -> None:
        if not self.under_way:
            return
        index = self.random.randrange(len(self.under_way))
        markers, remaining = self.under_way[index]
        written = remaining[: self.random.choice([1, 1, 3])]
        for at in written:
            self.partitions[at].mark(markers)
        if self.random.random() < 0.8:  # else the news is lost, and the marker will be written once more
            del remaining[: len(written)]
            self.coordinator.marked(markers, written)
        if not remaining:
            del self.under_way[index]

    def time_passes(self) -> None:
        ms = self.random.choices([1, 150, 1_000, TIMEOUT_MS, EXPIRATION_MS], [20, 20, 4, 2, 1])[0]
        self.coordinator.pass_time(ms)

    def the_coordinator_crashes(self) -> None:
        coordinator = self.coordinator
        kept = self.random.randint(coordinator.committed, len(coordinator.log))
        coordinator.crash(kept)
        self.under_way.clear()
        self._hear_all()

    # -- the end ----------------------------------------------------------------------------------------

    def end(self) -> None:
        for _ in range(4):
            self._run_dry()
            self.coordinator.pass_time(TIMEOUT_MS)
        _check_log(self.coordinator)
        assert not self.coordinator.unanswered
        for at, partition in self.partitions.items():
            assert not any(partition.open.values()), f"messages in {at} have no end"
        for attempt in self.attempts:
            assert len(attempt.fates) <= 1, "one transaction, two ends"
            assert bool(attempt.fates) == bool(attempt.messages)
            if attempt.told is not None and attempt.fates:
                assert attempt.fates == {attempt.told}, "the client was told otherwise"
            if attempt.companion is not None:
                assert len(attempt.fates | attempt.companion.fates) <= 1, "one committed, the other aborted"

    def _run_dry(self) -> None:
        while True:
            self.coordinator.commit(len(self.coordinator.log))
            self._hear_all()
            if not self.under_way:
                break
            self.markers_are_written()


def _add_error(response: Any) -> int:
    if hasattr(response, "error_code") and not getattr(response, "results_by_transaction", None):
        topics = getattr(response, "results_by_topic_v3_and_below", None)
        if topics is None:
            return int(response.error_code)
    else:
        topics = response.results_by_transaction[0].topic_results
    return int(topics[0].results_by_partition[0].partition_error_code)


def _check_log(coordinator: Coordinator) -> None:
    """The story that the log tells: each step of it is one of the table, and each marker has its reason."""
    now: dict[str, Transaction] = {}
    decided = set()
    for record in (record for batch in coordinator.log for record in batch):
        name = read_key(record.key)
        assert name is not None
        if record.value is None:
            assert State.DEAD in TRANSITIONS[now.pop(name).state].values()
            continue
        before, after = now.get(name), read_value(name, record.value)
        if before is not None:
            _check_transition(before, after)
        if after.prepared:
            commit = after.state is State.PREPARE_COMMIT
            decided.add((*after.stored, commit, tuple(sorted(after.partitions))))
        now[name] = after
    for markers in coordinator.sent:
        key = (markers.producer_id, markers.producer_epoch, markers.commit, markers.partitions)
        assert key in decided, "markers of a transaction that was never decided so"


def _check_transition(before: Transaction, after: Transaction) -> None:
    assert after.state in TRANSITIONS[before.state].values()
    if after.producer_id == before.producer_id:
        assert after.producer_epoch in (before.producer_epoch, before.producer_epoch + 1)
    else:
        assert after.producer_epoch == 0
        assert before.producer_epoch >= EPOCH_MAX - 1
    if after.prepared:
        assert after.partitions == before.partitions
    elif after.state is State.ONGOING and before.state is State.ONGOING:
        assert after.partitions > before.partitions


@pytest.mark.parametrize("seed", seeds(25, 100))
def test_every_transaction_ends_everywhere_in_the_way_its_client_was_told(seed: int) -> None:
    world = World(Random(seed))
    world.live(steps=800)
    world.end()


@pytest.mark.parametrize("seed", seeds(15, 60))
def test_transactions_that_are_ended_together_end_in_the_same_way(seed: int) -> None:
    world = World(Random(seed), pairs=True)
    world.live(steps=2000)
    world.end()
