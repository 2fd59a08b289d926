"""Random clients against a shard that crashes at any step.

Clients join, sync, heartbeat, commit, leave, fall silent and come back, in any order, on time or not; the
shard is killed between any two steps, before or after a step's records reached the log. After each step the
runtime compares it with one made from the log. On top of that, what clients are told must fit together:

- all who are told a generation are told the same leader and protocol, and the leader alone all members;
- an assignment is the one that the leader of that generation made for that member;
- committed offsets are found again, always;
- once the chaos ends, all who are there share one stable generation.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forebay.core.groups.classic.group import State
from forebay.errors import ErrorCode
from support.machines.group_runtime import Runtime, subscription
from support.machines.walks import walks

FATAL = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
AGAIN = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
CLIENTS = 5


@dataclass
class Client:
    name: str
    instance_id: str | None = None
    version: int = 9
    topics: tuple[str, ...] = ("orders",)
    member_id: str = ""
    generation: int = -1
    protocol: str = ""
    members: tuple[str, ...] = ()
    """Those to assign to, for the leader."""
    skip: bool = False
    assignment: bytes | None = None
    waits_join: int | None = None
    waits_sync: int | None = None

    def reset(self) -> None:
        self.generation, self.assignment, self.members, self.skip = -1, None, (), False


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runtime = Runtime(max_size=CLIENTS, max_session_timeout_ms=60_000)
        self.clients = [
            Client("a"),
            Client("b", version=3),
            Client("c", version=5),
            Client("s", instance_id="one"),
            Client("t", instance_id="two", version=8),
        ]
        self.life = 0
        """A generation's number may come again after a crash, so it is told apart by the shard's life."""
        self.told: dict[tuple[int, int], tuple[str, str]] = {}
        self.offsets: dict[int, int] = {}

    # -- what clients do -----------------------------------------------------------------------------

    def client(self, index: int) -> Client:
        return self.clients[index]

    def join(self, client: Client) -> None:
        client.waits_sync = None
        protocols = [("range", subscription(*client.topics)), ("sticky", subscription(*client.topics))]
        client.waits_join = self.runtime.join(
            client.member_id,
            instance_id=client.instance_id,
            protocols=protocols if client.name != "b" else protocols[::-1],
            session_ms=10_000,
            rebalance_ms=20_000,
            version=client.version,
        )
        self.hear()

    def sync(self, client: Client) -> None:
        made = {name: f"{name}@{client.generation}".encode() for name in client.members}
        client.waits_sync = self.runtime.sync(
            client.member_id,
            client.generation,
            {} if client.skip else made,
            instance_id=client.instance_id,
            protocol_name=client.protocol,
        )
        self.hear()

    def hear(self) -> None:
        """Let every client take the answers that have come."""
        for client in self.clients:
            joined = self.runtime.answers.get(client.waits_join or 0)
            if joined is not None:
                client.waits_join = None
                self.joined(client, joined)
            synced = self.runtime.answers.get(client.waits_sync or 0)
            if synced is not None:
                client.waits_sync = None
                self.synced(client, synced)

    def joined(self, client: Client, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code != ErrorCode.NONE:
            self.refused(client, answer.error_code)
        else:
            client.reset()
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.protocol, client.skip = answer.protocol_name, answer.skip_assignment
            client.members = tuple(member.member_id for member in answer.members)
            self.note(client, answer)

    def note(self, client: Client, answer: Any) -> None:
        where = (self.life, answer.generation_id)
        resumed = answer.leader != client.member_id and answer.leader not in self.runtime.group().members
        if resumed or client.skip:
            return  # a static member that took up its place again; its leader may be its own old self
        told = self.told.setdefault(where, (answer.protocol_name, answer.leader))
        renamed = self.runtime.group().members.get(answer.leader)
        assert told[0] == answer.protocol_name
        assert told[1] == answer.leader or (renamed is not None and renamed.instance_id is not None)
        assert bool(answer.members) == (answer.leader == client.member_id)
        assert not answer.members or client.member_id in client.members

    def synced(self, client: Client, answer: Any) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.refused(client, answer.error_code)
            return
        client.assignment = answer.assignment
        if client.assignment:
            name, _, generation = client.assignment.decode().rpartition("@")
            assert int(generation) == client.generation
            same = name == client.member_id
            assert same or (client.instance_id is not None and name.startswith(client.instance_id))

    def refused(self, client: Client, code: int) -> None:
        assert code in FATAL | AGAIN | {ErrorCode.GROUP_MAX_SIZE_REACHED}, ErrorCode(code).name
        client.reset()
        if code in FATAL or code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            client.member_id = ""

    # -- rules ---------------------------------------------------------------------------------------

    indexes = st.integers(0, CLIENTS - 1)

    @rule(index=indexes)
    def join_or_join_again(self, index: int) -> None:
        self.join(self.client(index))

    @rule(index=indexes)
    def act_as_a_good_client(self, index: int) -> None:
        self.act(self.client(index))

    @rule(index=indexes, topics=st.sampled_from([("orders",), ("orders", "payments"), ()]))
    def change_subscription(self, index: int, topics: tuple[str, ...]) -> None:
        self.client(index).topics = topics
        self.join(self.client(index))

    @rule(index=indexes)
    def restart_client(self, index: int) -> None:
        """It forgets everything; a static one comes back to its place."""
        client = self.client(index)
        client.member_id, client.waits_join, client.waits_sync = "", None, None
        client.reset()

    @rule(index=indexes)
    def leave(self, index: int) -> None:
        client = self.client(index)
        codes = self.runtime.leave((client.member_id, client.instance_id), group_id="g")
        assert codes[0] in {ErrorCode.NONE, *FATAL}
        self.restart_client(index)
        self.hear()

    @rule(index=indexes, partition=st.integers(0, 3), offset=st.integers(0, 1000), old=st.booleans())
    def commit(self, index: int, partition: int, offset: int, old: bool) -> None:
        client = self.client(index)
        code = self.runtime.commit(
            offset,
            partition=partition,
            member_id=client.member_id,
            generation=client.generation - old if client.generation > 0 else -1,
            instance_id=client.instance_id,
        )
        if code == ErrorCode.NONE:
            self.offsets[partition] = offset
        else:
            assert code in FATAL | AGAIN

    @rule(ms=st.sampled_from([1, 500, 4_000, 9_999, 10_000, 25_000]))
    def wait(self, ms: int) -> None:
        self.runtime.advance(ms)
        self.hear()

    @rule()
    def crash(self) -> None:
        self.life += 1
        self.runtime.crash()
        for client in self.clients:
            # The connection is lost, and with it what the client waited for.
            client.waits_join = client.waits_sync = None

    @rule(index=indexes, is_written=st.booleans())
    def crash_in_a_step(self, index: int, is_written: bool) -> None:
        """The answers of a step are never heard, whether or not its records were written."""
        clients, length = deepcopy(self.clients), len(self.runtime.log)
        self.act(self.client(index))
        self.clients = clients
        if not is_written:
            self.runtime.lose_from(length)
        self.crash()

    def act(self, client: Client) -> None:
        """The next thing that a well-behaved client does."""
        if client.waits_join is not None or client.waits_sync is not None:
            return
        if client.generation < 0:
            self.join(client)
        elif client.assignment is None:
            self.sync(client)
        else:
            code = self.runtime.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)
            if code != ErrorCode.NONE:
                self.refused(client, code)

    # -- what must hold ------------------------------------------------------------------------------

    @invariant()
    def committed_offsets_are_found(self) -> None:
        for partition, offset in self.offsets.items():
            found = self.runtime.shard.offsets.get("g", "orders", partition)
            assert found is not None
            assert found.offset == offset

    @invariant()
    def who_waits_is_not_forgotten(self) -> None:
        waiting = [each for each in self.clients if each.waits_join or each.waits_sync]
        assert not waiting or self.runtime.deadline_ms is not None

    def teardown(self) -> None:
        for _ in range(60):
            for client in self.clients:
                self.act(client)
            self.runtime.advance(1_000)
            self.hear()
        group = self.runtime.group()
        assert group.state is State.STABLE
        assert set(group.members) == {client.member_id for client in self.clients}
        assert {client.generation for client in self.clients} == {group.generation}
        assert all(client.assignment for client in self.clients)


TestWalk, TestManyWalks = walks(Walk, few=25, many=150, steps=30)
