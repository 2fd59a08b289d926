"""What is in hand, against a model that keeps every message in a list."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from forebay.client.messages import Message
from forebay.client.offsets_to_commit import OffsetsToCommit

PARTITIONS = 3


def message(partition: int, offset: int) -> Message:
    return Message(topic="t", partition=partition, offset=offset, timestamp_ms=0)


def offsets(found: list[TopicPartition]) -> dict[int, int]:
    return {each.partition: each.offset for each in found}


actions = st.one_of(
    # Offsets have gaps: markers and compaction leave them.
    st.tuples(st.just("hand_out"), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
    st.tuples(st.just("finish"), st.just(0), st.just(0)),
    st.tuples(st.just("forget_done"), st.just(0), st.just(0)),
    st.tuples(st.just("put_back"), st.just(0), st.just(0)),
    st.tuples(st.just("take_away"), st.integers(0, PARTITIONS - 1), st.just(0)),
)


@given(st.lists(actions, max_size=40))
def test_every_done_message_is_reported_until_it_is_forgotten(script: list[tuple[str, int, int]]) -> None:
    to_commit = OffsetsToCommit()
    held: dict[int, list[int]] = {}
    done: dict[int, list[int]] = {}
    last = dict.fromkeys(range(PARTITIONS), -1)
    for action, partition, step in script:
        if action == "hand_out":
            last[partition] += step
            to_commit.hand_out(message(partition, last[partition]))
            held.setdefault(partition, []).append(last[partition])
        elif action == "finish":
            to_commit.finish()
            for index, waiting in held.items():
                done.setdefault(index, []).extend(waiting)
            held.clear()
        elif action == "forget_done":
            to_commit.forget_done()
            done.clear()
        elif action == "put_back":
            again = {index: offset for (_, index), offset in to_commit.undone().items()}
            to_commit.put_back()
            assert again.keys() == held.keys()
            for index, offset in again.items():
                # From there on come all that are not done, and none that is.
                assert max(done.get(index, [-1])) < offset <= held[index][0]
                last[index] = offset - 1
            held.clear()
        else:
            to_commit.take_away([("t", partition)])
            held.pop(partition, None)
            done.pop(partition, None)
        assert offsets(to_commit.done()) == {index: found[-1] + 1 for index, found in done.items()}
        every = {i: [*done.get(i, []), *held.get(i, [])] for i in {*done, *held}}
        assert offsets(to_commit.nexts()) == {index: found[-1] + 1 for index, found in every.items()}


def test_a_partition_taken_away_with_messages_in_hand_is_remembered() -> None:
    to_commit = OffsetsToCommit()
    to_commit.take_away([("t", 0)])
    assert not to_commit.torn
    to_commit.hand_out(message(0, 5))
    to_commit.take_away([("t", 0)])
    assert to_commit.torn
    to_commit.put_back()
    assert not to_commit.torn


def test_a_partition_that_was_cut_with_messages_in_hand_is_read_again_from_there() -> None:
    to_commit = OffsetsToCommit()
    to_commit.hand_out(message(0, 5))
    to_commit.hand_out(message(0, 3))
    assert to_commit.torn
    assert to_commit.undone() == {("t", 0): 3}
