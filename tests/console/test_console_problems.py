"""What the overview tells as wrong, in pictures of a cluster that are made by hand."""

from __future__ import annotations

from typing import Any

from forebay.console.watch.problems import problems
from forebay.console.watch.snapshot import BrokerSeen, GroupSeen, PartitionSeen, Snapshot, TopicSeen
from forebay.operations.remote_logs import WAITING_SEGMENTS_MAX
from forebay.wire.messages.describe_remote_logs import DescribedRemoteLog


def remote(topic: str, **facts: Any) -> DescribedRemoteLog:
    return DescribedRemoteLog(topic=topic, **{"is_known": True, "copies": True, **facts})


def picture(*groups: GroupSeen, **logs: DescribedRemoteLog) -> Snapshot:
    def topic(name: str, log: DescribedRemoteLog) -> TopicSeen:
        part = PartitionSeen(index=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), remote=log)
        return TopicSeen(name=name, id=name, partitions=(part,))

    return Snapshot(
        time_s=0.0,
        number=1,
        cluster_id="",
        controller=1,
        brokers=(BrokerSeen(id=1, host="127.0.0.1", port=9092, rack=None),),
        topics={name: topic(name, log) for name, log in logs.items()},
        groups={group.name: group for group in groups},
        readers={},
        ledgers={},
        topic_lags={},
        took_s=0.0,
    )


def group(name: str, lag: int, state: str = "Empty", **facts: Any) -> GroupSeen:
    lags = {("orders", 0): lag}
    return GroupSeen(name=name, kind="classic", state=state, coordinator=1, lags=lags, **facts)


def test_a_group_that_is_behind_and_has_no_members_is_a_problem() -> None:
    (found,) = problems(picture(group("a", 5), group("b", 70), group("c", 9, "Stable"), group("d", 0)))
    assert found.severity == "warning"
    assert found.title == "2 groups are behind, and nobody reads for them"
    assert found.advice.startswith("b, a: ")
    assert found.link == "groups?sort=-lag"


def test_a_stream_of_spark_is_no_member_and_no_problem() -> None:
    assert problems(picture(group("stream", 5, is_spark=True))) == []


def test_a_store_that_fails_is_worse_than_copying_that_is_behind() -> None:
    late = remote("late", waiting_segments=WAITING_SEGMENTS_MAX)
    found = problems(
        picture(
            late=late,
            busy=remote("busy", waiting_segments=WAITING_SEGMENTS_MAX - 1),
            lost=remote("lost", waiting_segments=WAITING_SEGMENTS_MAX, problem="the bucket is gone"),
        )
    )
    assert [(each.severity, each.link) for each in found] == [
        ("severe", "topics/lost?tab=tiers"),
        ("warning", "topics/late?tab=tiers"),
    ]
    assert found[0].title == "The object store fails for 1 partition"
    assert "lost: the bucket is gone." in found[0].advice
    assert found[1].title == "Copying to the object store is behind: 8 closed segments wait"


def test_several_topics_that_are_behind_are_one_problem() -> None:
    logs = {name: remote(name, waiting_segments=WAITING_SEGMENTS_MAX) for name in ("a", "b", "c", "d", "e")}
    (found,) = problems(picture(**logs))
    assert found.link == "topics?sort=-remote"
    assert found.advice.startswith("a, b, c and 2 more: ")
