"""Share sessions: epochs, partitions that come and go, and the connections that sessions end with."""

from __future__ import annotations

from uuid import UUID

import pytest

from forebay.core.shares import sessions as sessions_module
from forebay.core.shares.sessions import SessionKey, SessionPartition, ShareSessions
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from forebay.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

TOPIC, OTHER = UUID(int=1).bytes, UUID(int=2).bytes
ONE_ACK = [AcknowledgementBatch(first_offset=0, last_offset=9, acknowledge_types=[1])]


def topic(topic_id: bytes, *partitions: int, acks: list[AcknowledgementBatch] | None = None) -> FetchTopic:
    return FetchTopic(
        topic_id=topic_id,
        partitions=[
            FetchPartition(partition_index=p, acknowledgement_batches=acks or []) for p in partitions
        ],
    )


def fetch(
    epoch: int, *topics: FetchTopic, member: str = "m", forgotten: tuple[int, ...] = ()
) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=epoch,
        topics=list(topics),
        forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC, partitions=list(forgotten))]
        if forgotten
        else [],
    )


def acknowledge(epoch: int, member: str = "m") -> ShareAcknowledgeRequest:
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=ONE_ACK)
    return ShareAcknowledgeRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=epoch,
        topics=[AcknowledgeTopic(topic_id=TOPIC, partitions=[partition])],
    )


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(sessions_max=2, partitions_max=8)


def partitions_of(sessions: ShareSessions, request: ShareFetchRequest, connection: str = "c") -> list[int]:
    session = sessions.fetch(request, connection).session
    assert session is not None
    return [at.partition for at in session.partitions]


def refused(call: object, request: object, connection: str = "c") -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call(request, connection)  # type: ignore[operator]
    return error.value.code


def test_partitions_are_named_once_and_then_added_and_forgotten(sessions: ShareSessions) -> None:
    assert partitions_of(sessions, fetch(0, topic(TOPIC, 0, 1))) == [0, 1]
    assert partitions_of(sessions, fetch(1)) == [0, 1]
    assert partitions_of(sessions, fetch(2, topic(TOPIC, 2), forgotten=(0,))) == [1, 2]


def test_a_topic_may_be_named_twice_in_one_request(sessions: ShareSessions) -> None:
    sessions.fetch(fetch(0, topic(TOPIC, 0), topic(OTHER, 0), topic(TOPIC, 3)), "c")
    request = fetch(1, topic(TOPIC, 0, acks=ONE_ACK), topic(OTHER, 0), topic(TOPIC, 0, acks=ONE_ACK))
    assert sessions.fetch(request, "c").acknowledgements == {SessionPartition(TOPIC, 0): ONE_ACK * 2}


def test_a_partition_that_comes_with_acknowledgements_and_is_forgotten_is_not_fetched(
    sessions: ShareSessions,
) -> None:
    sessions.fetch(fetch(0, topic(TOPIC, 1)), "c")
    found = sessions.fetch(fetch(1, topic(TOPIC, 0, acks=ONE_ACK), forgotten=(0,)), "c")
    assert found.session is not None
    assert list(found.session.partitions) == [SessionPartition(TOPIC, 1)]
    assert found.acknowledgements == {SessionPartition(TOPIC, 0): ONE_ACK}


def test_fetch_and_acknowledge_share_one_epoch(sessions: ShareSessions) -> None:
    sessions.fetch(fetch(0, topic(TOPIC, 0)), "c")
    sessions.acknowledge(acknowledge(1), "c")
    assert refused(sessions.fetch, fetch(1)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert not sessions.fetch(fetch(2), "c").is_final


def test_a_refused_request_does_not_count(sessions: ShareSessions) -> None:
    sessions.fetch(fetch(0, topic(TOPIC, 0)), "c")
    for epoch in (2, 7):
        assert refused(sessions.acknowledge, acknowledge(epoch)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert partitions_of(sessions, fetch(1)) == [0]


def test_an_unknown_session(sessions: ShareSessions) -> None:
    for epoch in (1, -1):
        assert refused(sessions.fetch, fetch(epoch)) == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert refused(sessions.acknowledge, acknowledge(epoch)) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert refused(sessions.acknowledge, acknowledge(0)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_an_opening_request_acknowledges_nothing(sessions: ShareSessions) -> None:
    opening = fetch(0, topic(TOPIC, 0, acks=ONE_ACK))
    assert refused(sessions.fetch, opening) == ErrorCode.INVALID_REQUEST
    assert len(sessions) == 0


def test_a_session_has_a_limit_of_partitions(sessions: ShareSessions) -> None:
    too_many = fetch(0, topic(TOPIC, *range(5)), topic(OTHER, *range(4)))
    assert refused(sessions.fetch, too_many) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (len(sessions), sessions.partition_count) == (0, 0)
    assert len(partitions_of(sessions, fetch(0, topic(TOPIC, *range(8))))) == 8
    assert refused(sessions.fetch, fetch(1, topic(TOPIC, 8))) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(partitions_of(sessions, fetch(1, topic(TOPIC, 0, 7)))) == 8, "named again, not added"
    assert 0 not in partitions_of(sessions, fetch(2, topic(TOPIC, 8), forgotten=(0,)))
    assert len(partitions_of(sessions, fetch(0, topic(OTHER, *range(8)), member="n"))) == 8
    assert len(partitions_of(sessions, fetch(0, topic(TOPIC, *range(8))))) == 8, "a new session of the member"
    assert sessions.partition_count == 16


@pytest.mark.parametrize("member", ["", "m" * 37])
def test_a_member_id_has_a_length(sessions: ShareSessions, member: str) -> None:
    assert refused(sessions.fetch, fetch(0, member=member)) == ErrorCode.INVALID_REQUEST


def test_the_last_request_ends_the_session(sessions: ShareSessions) -> None:
    sessions.fetch(fetch(0, topic(TOPIC, 0)), "c")
    last = sessions.fetch(fetch(-1, topic(TOPIC, 0, acks=ONE_ACK)), "c")
    assert last.is_final
    assert last.acknowledgements == {SessionPartition(TOPIC, 0): ONE_ACK}
    assert len(sessions) == 0
    assert sessions.connection_closed("c") == []


def test_there_is_a_limit(sessions: ShareSessions) -> None:
    for member in ("a", "b"):
        sessions.fetch(fetch(0, member=member), member)
    assert refused(sessions.fetch, fetch(0, member="c")) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.fetch(fetch(0, member="a"), "a")  # its own place is free for it
    sessions.fetch(fetch(-1, member="b"), "b")
    sessions.fetch(fetch(0, member="c"), "c")


def test_partitions_of_all_sessions_are_bounded(
    sessions: ShareSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members may name partitions that do not exist, and more of them with each request."""
    monkeypatch.setattr(sessions_module, "PARTITIONS_MAX", 5)
    session = sessions.fetch(fetch(0, topic(TOPIC, 0, 1, 2)), "c").session
    for request in (fetch(1, topic(TOPIC, 3, 4, 5)), fetch(0, topic(OTHER, 0, 1, 2), member="other")):
        with pytest.raises(KafkaError) as refused:
            sessions.fetch(request, "c")
        assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert session is not None and session.epoch == 1 and len(sessions) == 1, "nothing has changed"
    sessions.fetch(fetch(1, topic(TOPIC, 2, 3, 4), forgotten=(0, 1)), "c")
    assert sessions.partition_count == 3
    sessions.fetch(fetch(0, topic(TOPIC, 5, 6, 7)), "c")
    assert sessions.partition_count == 3, "a session that is opened anew takes the place of the old one"
    sessions.fetch(fetch(0, topic(OTHER, 0, 1), member="other"), "c")
    sessions.fetch(fetch(-1), "c")
    assert sessions.partition_count == 2
    sessions.connection_closed("c")
    assert sessions.partition_count == 0


def test_a_session_ends_with_its_connection(sessions: ShareSessions) -> None:
    sessions.fetch(fetch(0, topic(TOPIC, 0)), "c")
    assert sessions.connection_closed("c") == [SessionKey("g", "m")]
    assert refused(sessions.fetch, fetch(1)) == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_member_that_moved_to_another_connection_keeps_its_session(
    sessions: ShareSessions, epoch: int
) -> None:
    sessions.fetch(fetch(0, topic(TOPIC, 0)), "old")
    sessions.fetch(fetch(epoch, topic(TOPIC, 0)), "new")
    assert sessions.connection_closed("old") == []
    assert partitions_of(sessions, fetch(epoch + 1), "new") == [0]
    assert sessions.connection_closed("new") == [SessionKey("g", "m")]


def test_epochs_begin_again_at_one(sessions: ShareSessions) -> None:
    session = sessions.fetch(fetch(0, topic(TOPIC, 0)), "c").session
    assert session is not None
    session.epoch = 2**31 - 1
    sessions.fetch(fetch(2**31 - 1), "c")
    assert session.epoch == 1


def test_partitions_with_records_go_to_the_end_and_errors_are_due_again(sessions: ShareSessions) -> None:
    session = sessions.fetch(fetch(0, topic(TOPIC, 0, 1, 2)), "c").session
    assert session is not None
    assert all(session.partitions.values()), "a new partition is answered once"
    session.answered(SessionPartition(TOPIC, 0), records=True, error=False)
    session.answered(SessionPartition(TOPIC, 1), records=False, error=True)
    session.answered(SessionPartition(OTHER, 9), records=True, error=False)
    assert session.partitions == {
        SessionPartition(TOPIC, 1): True,
        SessionPartition(TOPIC, 2): True,
        SessionPartition(TOPIC, 0): False,
    }
    assert [at.partition for at in session.partitions] == [1, 2, 0]
