"""Incremental fetch sessions: epochs, what an answer may leave out, fairness, settling, eviction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forebay.core.partition.fetch_session import EPOCH_MAX, FetchContext, FetchSessions, FetchTarget
from forebay.errors import ErrorCode
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

TOPIC_ID = b"i" * 16


def fetch(
    *offsets: tuple[int, int],
    session: int = 0,
    epoch: int = 0,
    forget: Iterable[int] = (),
    topic: str = "t",
) -> FetchRequest:
    """A request for (partition, offset) pairs of one topic, known by name and by id."""
    partitions = [FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1000) for p, o in offsets]
    topics = [FetchTopic(topic=topic, topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
    forgotten = list(forget)
    gone = [ForgottenTopic(topic=topic, topic_id=TOPIC_ID, partitions=forgotten)] if forgotten else []
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)


def counting(start: int = 1) -> Callable[[], int]:
    return count(start).__next__


def cache(slots_max: int = 10, *, partitions_max: int = 1000, eviction_ms: int = 100) -> FetchSessions:
    return FetchSessions(slots_max, new_id=counting(), eviction_ms=eviction_ms, partitions_max=partitions_max)


def resolve(
    sessions: FetchSessions,
    request: FetchRequest,
    *,
    by_id: bool = False,
    now_ms: int = 0,
    privileged: bool = False,
) -> FetchContext:
    return sessions.resolve(request, by_id=by_id, now_ms=now_ms, privileged=privileged)


def wanted(context: FetchContext) -> list[tuple[int, int]]:
    return [(t.request.partition, t.request.fetch_offset) for t in context.targets]


def only(context: FetchContext) -> FetchTarget:
    (target,) = context.targets
    return target


def test_without_a_session_everything_is_read_and_answered() -> None:
    sessions = cache()
    context = resolve(sessions, fetch((0, 5), (1, 6), epoch=-1))
    assert (context.session_id, context.error_code) == (0, ErrorCode.NONE)
    assert wanted(context) == [(0, 5), (1, 6)]
    assert [t.topic for t in context.targets] == ["t", "t"]
    assert all(context.must_answer(t, 5, 0, 0) for t in context.targets)
    assert not context.targets[0].changed()
    context.targets[0].skip_until_changed()
    assert len(sessions) == 0


def test_topics_are_known_by_id_where_the_client_says_so() -> None:
    sessions = cache()
    assert only(resolve(sessions, fetch((0, 5), epoch=-1), by_id=True)).topic == TOPIC_ID
    assert only(resolve(sessions, fetch((0, 5)), by_id=True)).topic == TOPIC_ID
    context = resolve(sessions, fetch(session=1, epoch=1), by_id=False)
    assert context.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert wanted(resolve(sessions, fetch(session=1, epoch=1), by_id=True)) == [(0, 5)]


def test_a_session_remembers_changes_and_forgets() -> None:
    sessions = cache()
    first = resolve(sessions, fetch((0, 5), (1, 6)))
    assert first.session_id == 1
    assert sessions.partition_count == 2
    assert wanted(resolve(sessions, fetch(session=1, epoch=1))) == [(0, 5), (1, 6)]
    assert wanted(resolve(sessions, fetch((1, 7), session=1, epoch=2))) == [(0, 5), (1, 7)]
    third = resolve(sessions, fetch((2, 0), session=1, epoch=3, forget=[0, 9]))
    assert wanted(third) == [(1, 7), (2, 0)]
    assert third.session_id == 1
    assert sessions.partition_count == 2


def test_the_first_answer_is_full_and_later_ones_leave_out_what_is_known() -> None:
    sessions = cache()
    first = resolve(sessions, fetch((0, 5)))
    assert first.must_answer(only(first), 5, 0, 0)
    epochs = count(1)

    def answers(high_watermark: int, log_start: int, size: int = 0, error: int = 0) -> bool:
        context = resolve(sessions, fetch(session=1, epoch=next(epochs)))
        return context.must_answer(only(context), high_watermark, log_start, size, error)

    assert not answers(5, 0)
    assert answers(6, 0)  # the high watermark moved
    assert not answers(6, 0)
    assert answers(6, 2)  # the log start moved
    assert answers(6, 2, size=100)  # records
    assert not answers(6, 2)
    assert answers(6, 2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answers(6, 2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answers(6, 2)  # well again: said once
    assert not answers(6, 2)
    context = resolve(sessions, fetch(session=1, epoch=next(epochs)))
    assert context.must_answer(only(context), 6, 2, 0, forced=True)
    assert answers(6, 2), "told with a diverging epoch, it could not be used"


def test_what_was_told_in_another_term_is_told_again() -> None:
    """A follower that has heard of the next term meanwhile does not take the answer."""
    sessions = cache()
    request = fetch((0, 5))
    request.topics[0].partitions[0].current_leader_epoch = 1
    first = resolve(sessions, request)
    assert first.must_answer(only(first), 5, 0, 0)
    again = fetch((0, 5), session=1, epoch=1)
    again.topics[0].partitions[0].current_leader_epoch = 1
    context = resolve(sessions, again)
    assert not context.must_answer(only(context), 5, 0, 0), "in the same term it knows"
    later = fetch((0, 5), session=1, epoch=2)
    later.topics[0].partitions[0].current_leader_epoch = 3
    context = resolve(sessions, later)
    assert context.must_answer(only(context), 5, 0, 0)


def test_a_full_answer_holds_everything_even_if_asked_twice() -> None:
    context = resolve(cache(), fetch((0, 5)))
    assert context.must_answer(only(context), 5, 0, 0)
    assert context.must_answer(only(context), 5, 0, 0)


def test_epochs_are_checked() -> None:
    sessions = cache()
    resolve(sessions, fetch((0, 5)))
    for epoch in (2, 7, -2, EPOCH_MAX):
        context = resolve(sessions, fetch((0, 9), session=1, epoch=epoch))
        assert context.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (context.targets, context.session_id) == ([], 0)
    assert wanted(resolve(sessions, fetch(session=1, epoch=1))) == [(0, 5)]
    assert resolve(sessions, fetch(session=1, epoch=1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("session", [0, 2, 99])
def test_an_unknown_session_is_an_error(session: int) -> None:
    sessions = cache()
    resolve(sessions, fetch((0, 5)))
    context = resolve(sessions, fetch(session=session, epoch=1))
    assert context.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_to_one() -> None:
    sessions = cache()
    session = only(resolve(sessions, fetch((0, 5)))).session
    assert session is not None
    session.epoch = EPOCH_MAX
    assert resolve(sessions, fetch(session=1, epoch=EPOCH_MAX)).error_code == ErrorCode.NONE
    assert resolve(sessions, fetch(session=1, epoch=1)).error_code == ErrorCode.NONE


def test_a_full_fetch_replaces_the_session_and_a_final_one_ends_it() -> None:
    sessions = cache()
    resolve(sessions, fetch((0, 5), (1, 5)))
    assert resolve(sessions, fetch((0, 8), session=1)).session_id == 2
    assert (len(sessions), sessions.partition_count) == (1, 1)
    final = resolve(sessions, fetch((0, 9), session=2, epoch=-1))
    assert (final.session_id, wanted(final)) == (0, [(0, 9)])
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_a_session_ends_with_its_last_partition() -> None:
    sessions = cache()
    resolve(sessions, fetch((0, 5)))
    context = resolve(sessions, fetch(session=1, epoch=1, forget=[0]))
    assert (context.session_id, context.targets, context.error_code) == (0, [], ErrorCode.NONE)
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_a_full_fetch_of_nothing_makes_no_session() -> None:
    sessions = cache()
    assert resolve(sessions, fetch()).session_id == 0
    assert len(sessions) == 0


def test_partitions_that_gave_records_go_to_the_end() -> None:
    sessions = cache()
    context = resolve(sessions, fetch((0, 0), (1, 0), (2, 0)))
    zero, one, two = context.targets
    context.must_answer(zero, 9, 0, 100)
    context.must_answer(one, 9, 0, 0)
    context.must_answer(two, 9, 0, 100)
    assert resolve(sessions, fetch(session=1, epoch=1)).targets == [one, zero, two]
    # A new offset does not jump the queue.
    assert resolve(sessions, fetch((2, 5), session=1, epoch=2)).targets == [one, zero, two]


def test_settled_targets_are_left_alone_until_they_change() -> None:
    sessions = cache()
    zero, one = resolve(sessions, fetch((0, 0), (1, 0))).targets
    zero.skip_until_changed()
    one.skip_until_changed()
    assert resolve(sessions, fetch(session=1, epoch=1)).targets == []
    assert one.changed()
    assert resolve(sessions, fetch(session=1, epoch=2)).targets == [one]
    assert resolve(sessions, fetch((0, 3), session=1, epoch=3)).targets == [one, zero]


def test_nobody_wants_to_hear_of_forgotten_targets_or_closed_sessions() -> None:
    sessions = cache()
    zero, one = resolve(sessions, fetch((0, 0), (1, 0))).targets
    resolve(sessions, fetch(session=1, epoch=1, forget=[0]))
    assert not zero.changed()
    assert one.changed()
    resolve(sessions, fetch(session=1, epoch=-1))
    assert not one.changed()


def test_an_answer_to_a_target_forgotten_meanwhile_is_harmless() -> None:
    sessions = cache()
    context = resolve(sessions, fetch((0, 0), (1, 0)))
    resolve(sessions, fetch(session=1, epoch=1, forget=[0]))
    assert context.must_answer(context.targets[0], 5, 0, 100)
    assert wanted(resolve(sessions, fetch(session=1, epoch=2))) == [(1, 0)]


def test_the_longest_unused_session_gives_way_once_it_is_stale() -> None:
    sessions = cache(2)
    resolve(sessions, fetch((0, 0)), now_ms=0)
    resolve(sessions, fetch((0, 0)), now_ms=10)
    resolve(sessions, fetch(session=1, epoch=1), now_ms=50)
    refused = resolve(sessions, fetch((0, 4)), now_ms=110)
    assert (refused.session_id, wanted(refused)) == (0, [(0, 4)])
    assert resolve(sessions, fetch((0, 4)), now_ms=111).session_id == 3
    assert resolve(sessions, fetch(session=2, epoch=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert resolve(sessions, fetch(session=1, epoch=2)).error_code == ErrorCode.NONE


def test_a_follower_takes_a_consumers_place_but_not_a_followers() -> None:
    sessions = cache(2)
    follower = resolve(sessions, fetch((0, 0)), privileged=True).session_id
    consumer = resolve(sessions, fetch((0, 0))).session_id
    second = resolve(sessions, fetch((0, 0)), privileged=True).session_id
    assert second != 0
    assert (
        resolve(sessions, fetch(session=consumer, epoch=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    assert resolve(sessions, fetch(session=follower, epoch=1)).error_code == ErrorCode.NONE
    assert resolve(sessions, fetch((0, 0)), privileged=True).session_id == 0


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = cache(partitions_max=3)
    assert resolve(sessions, fetch((0, 0), (1, 0))).session_id == 1
    assert resolve(sessions, fetch((0, 0), (1, 0))).session_id == 0
    grown = resolve(sessions, fetch((2, 0), (3, 0), session=1, epoch=1))
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 0


def test_consumers_with_many_partitions_keep_no_follower_out() -> None:
    sessions = cache(partitions_max=10)
    few = resolve(sessions, fetch((0, 0))).session_id
    many = resolve(sessions, fetch(*((p, 0) for p in range(9)), topic="made up")).session_id
    follower = resolve(sessions, fetch(*((p, 0) for p in range(5))), privileged=True).session_id
    assert follower and few and many
    assert resolve(sessions, fetch(session=few, epoch=1)).error_code == ErrorCode.NONE, (
        "it was not in the way"
    )
    assert resolve(sessions, fetch(session=many, epoch=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    grown = resolve(sessions, fetch(*((p, 0) for p in range(5, 10)), session=follower, epoch=1))
    assert grown.error_code == ErrorCode.NONE
    assert sessions.partition_count == 10
    assert resolve(sessions, fetch((0, 0)), privileged=True).session_id == 0, "no other follower goes"


def test_partitions_of_a_session_that_nobody_uses_are_given_to_others() -> None:
    sessions = cache(partitions_max=3)
    assert resolve(sessions, fetch((0, 0), (1, 0)), now_ms=0).session_id == 1
    assert resolve(sessions, fetch((0, 0), (1, 0)), now_ms=100).session_id == 0
    assert resolve(sessions, fetch((0, 0), (1, 0)), now_ms=101).session_id == 2
    assert sessions.partition_count == 2


def test_a_session_makes_room_for_one_that_is_less_than_half_as_large() -> None:
    sessions = cache(partitions_max=10)
    many = resolve(sessions, fetch(*((p, 0) for p in range(9)), topic="made up")).session_id
    assert resolve(sessions, fetch(*((p, 0) for p in range(5)))).session_id == 0, "it is no smaller than half"
    few = resolve(sessions, fetch((0, 0), (1, 0))).session_id
    assert few and sessions.partition_count == 2
    assert resolve(sessions, fetch(session=many, epoch=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    again = resolve(sessions, fetch(*((p, 0) for p in range(8)), topic="made up")).session_id
    grown = resolve(sessions, fetch((2, 0), session=few, epoch=1))
    assert (grown.error_code, sessions.partition_count) == (ErrorCode.NONE, 3)
    assert resolve(sessions, fetch(session=again, epoch=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_is_named_very_often_is_read_once() -> None:
    without = fetch(*[(0, number) for number in range(60)], (1, 7), epoch=-1)
    assert wanted(resolve(cache(), without)) == [(0, 59), (1, 7)]


def finished(steps: Generator[None, None, FetchContext]) -> tuple[FetchContext, int]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: FetchContext = end.value
            return found, count
        count += 1


def test_very_many_partitions_are_taken_into_a_session_in_steps() -> None:
    stepwise, whole = cache(partitions_max=5_000), cache(partitions_max=5_000)
    requests = [
        fetch(*((p, 0) for p in range(2_000))),
        fetch(*((p, 9) for p in range(1_500, 2_500)), session=1, epoch=1, forget=range(1_000)),
        fetch(*((p, 0) for p in range(2_500, 9_000)), session=1, epoch=2),
        fetch((0, 0), session=1, epoch=3),
        fetch(*((p, 0) for p in range(600)), epoch=-1),
        fetch(*((p, 0) for p in range(6_000))),
    ]
    for request in requests:
        expected = resolve(whole, request)
        found, steps = finished(stepwise.resolve_steps(request, by_id=False, now_ms=0))
        named = sum(len(topic.partitions) for topic in request.topics)
        assert steps >= named // 200 or not found.targets
        assert (found.error_code, found.session_id) == (expected.error_code, expected.session_id)
        assert wanted(found) == wanted(expected)
        assert stepwise.partition_count == whole.partition_count


def test_a_session_that_is_closed_while_partitions_are_added_is_gone() -> None:
    sessions = cache(partitions_max=5_000)
    session = resolve(sessions, fetch((0, 0))).session
    steps = sessions.resolve_steps(
        fetch(*((p, 0) for p in range(1_000)), session=1, epoch=1), by_id=False, now_ms=0
    )
    next(steps)
    sessions.close(session)
    found, _ = finished(steps)
    assert found.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (0, 0)
    begun = sessions.resolve_steps(fetch(*((p, 0) for p in range(1_000))), by_id=False, now_ms=0)
    next(begun)
    assert sessions.partition_count == 200
    begun.close()
    assert sessions.partition_count == 0, "its client went away"


def test_no_slots_no_sessions() -> None:
    assert resolve(cache(0), fetch((0, 0))).session_id == 0


def test_session_ids_are_not_given_twice() -> None:
    numbers = iter([5, 5, 5, 6])
    sessions = FetchSessions(9, new_id=lambda: next(numbers))
    assert resolve(sessions, fetch((0, 0))).session_id == 5
    assert resolve(sessions, fetch((0, 0))).session_id == 6
    stuck = FetchSessions(9, new_id=lambda: 7)
    assert [resolve(stuck, fetch((0, 0))).session_id for _ in range(2)] == [7, 0]


class OneClient(RuleBasedStateMachine):
    """A client that keeps its own full picture must never miss anything by what answers leave out."""

    @initialize()
    def start(self) -> None:
        self.sessions = cache()
        self.epoch = 0
        self.session = 0
        self.wanted: dict[int, int] = {}
        self.actual = dict.fromkeys(range(4), (0, 0))
        self.told: dict[int, tuple[int, int]] = {}

    @rule(partition=st.integers(0, 3), high_watermark=st.integers(0, 3), log_start=st.integers(0, 2))
    def log_changes(self, partition: int, high_watermark: int, log_start: int) -> None:
        self.actual[partition] = (high_watermark, log_start)

    @rule(offsets=st.dictionaries(st.integers(0, 3), st.integers(0, 9)), forget=st.sets(st.integers(0, 3)))
    def fetches(self, offsets: dict[int, int], forget: set[int]) -> None:
        forget -= offsets.keys()
        self.wanted |= offsets
        for partition in forget:
            self.wanted.pop(partition, None)
            self.told.pop(partition, None)
        asked = offsets if self.session else self.wanted
        request = fetch(*asked.items(), session=self.session, epoch=self.epoch, forget=sorted(forget))
        context = resolve(self.sessions, request)
        assert context.error_code == ErrorCode.NONE
        assert dict(wanted(context)) == self.wanted
        self._read(context)

    def _read(self, context: FetchContext) -> None:
        for target in context.targets:
            partition = target.request.partition
            if context.must_answer(target, *self.actual[partition], size=0):
                self.told[partition] = self.actual[partition]
        self.epoch = self.epoch + 1 if context.session_id else 0
        self.session = context.session_id
        assert all(self.told[partition] == self.actual[partition] for partition in self.wanted)

    @rule()
    def loses_its_session(self) -> None:
        self.session, self.epoch = 0, 0
        self.told.clear()

    @invariant()
    def partitions_are_counted(self) -> None:
        if hasattr(self, "sessions"):
            assert self.sessions.partition_count == sum(len(session.targets) for session in self.sessions)


TestOneClient = OneClient.TestCase
TestOneClient.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
