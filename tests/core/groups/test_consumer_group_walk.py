"""Random members of the consumer protocol against a shard that crashes at any step.

Members join, change their minds, leave, die, come back; answers get lost; topics come, grow and go. At no
time do two members that are in the group own the same partition, as far as they have been told. Once nothing
changes any more, each member has its share within two of its heartbeats.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forebay.core.groups.shard import TopicInfo
from forebay.errors import ErrorCode
from support.machines.consumer_runtime import SESSION_MS, ConsumerClient, ConsumerRuntime, settle
from support.machines.walks import walks

CLIENTS = 5
SUBSCRIPTIONS = [
    (("orders",), None),
    (("orders", "payments"), None),
    (("payments", "missing"), None),
    ((), "(orders|pay.*|new)"),
    ((), None),
]


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runtime = ConsumerRuntime()
        names = [("a", None), ("b", None), ("c", None), ("s", "one"), ("t", "two")]
        self.clients = [ConsumerClient(self.runtime, name, instance) for name, instance in names]

    indexes = st.integers(0, CLIENTS - 1)

    @rule(index=indexes, lost=st.booleans(), says_owned=st.booleans())
    def beat(self, index: int, lost: bool, says_owned: bool) -> None:
        code = self.clients[index].beat(lost=lost, says_owned=says_owned)
        assert code in (
            ErrorCode.NONE,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
        )

    @rule()
    def everybody_beats(self) -> None:
        for client in self.clients:
            client.beat()

    @rule(index=indexes)
    def give_up(self, index: int) -> None:
        self.clients[index].give_up()

    @rule(index=indexes, chosen=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, index: int, chosen: tuple[tuple[str, ...], str | None]) -> None:
        self.clients[index].subscribe(*chosen[0], regex=chosen[1])

    @rule(index=indexes)
    def leave(self, index: int) -> None:
        self.clients[index].leave()

    @rule(index=st.sampled_from([3, 4]))
    def leave_for_a_moment(self, index: int) -> None:
        client = self.clients[index]
        if client.is_in:
            client.leave(-2)

    @rule(index=indexes)
    def die(self, index: int) -> None:
        self.clients[index].restart()

    @rule(ms=st.sampled_from([1, 5_000, 30_000, SESSION_MS, 100_000]))
    def wait(self, ms: int) -> None:
        before = set(self.members())
        self.runtime.advance(ms)
        gone = before - set(self.members())
        for client in self.clients:
            if client.member_id in gone:
                client.restart()  # it knows its own timeouts, and stops

    @rule(count=st.integers(1, 9), name=st.sampled_from(["orders", "payments", "new", "other"]))
    def see_topic(self, count: int, name: str) -> None:
        """It is made, grows, or is made anew."""
        known = self.runtime.topics.get(name)
        same = known is not None and known.partitions <= count
        topic_id = known.topic_id if known is not None and same else bytes([*name.encode()[:1], count]) * 8
        self.runtime.see_topics({**self.runtime.topics, name: TopicInfo(topic_id, count)})

    @rule(name=st.sampled_from(["orders", "payments", "new"]))
    def lose_topic(self, name: str) -> None:
        topics = {each: info for each, info in self.runtime.topics.items() if each != name}
        self.runtime.see_topics(topics)

    @rule()
    def compact(self) -> None:
        self.runtime.compact()

    @rule()
    def crash(self) -> None:
        self.runtime.crash()

    @rule(index=indexes, is_written=st.booleans())
    def crash_in_a_step(self, index: int, is_written: bool) -> None:
        """The answer is never heard, whether or not the records of the step were written."""
        length = len(self.runtime.log)
        self.clients[index].beat(lost=True)
        if not is_written:
            self.runtime.lose_from(length)
        self.runtime.crash()

    def members(self) -> dict[str, object]:
        group = self.runtime.shard.groups.get("g")
        return dict(group.state.members) if group is not None else {}  # type: ignore[attr-defined]

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        owned = [partition for client in self.clients for partition in client.owned]
        assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        for client in self.clients:
            client.give_up()
        self.wait(SESSION_MS - 1)
        for _ in range(4):
            # Dead members time out, and static ones that died can come back after that.
            for client in self.clients:
                client.beat()
                client.give_up()
            self.wait(SESSION_MS // 2)
        self.runtime.see_topics({**self.runtime.topics, "orders": TopicInfo(b"last" * 4, 7)})
        for _ in range(2):
            settle(self.clients)
        group = self.runtime.consumers()
        assert group.state_name == "Stable"
        assert set(group.state.members) == {client.member_id for client in self.clients}
        for client in self.clients:
            assert client.owned == group.state.target(client.member_id)
        wanted = {
            (info.topic_id, index)
            for name, info in self.runtime.topics.items()
            if group.is_subscribed(name)
            for index in range(info.partitions)
        }
        assert {partition for client in self.clients for partition in client.owned} == wanted


TestWalk, TestManyWalks = walks(Walk, few=40, many=250, steps=40)
