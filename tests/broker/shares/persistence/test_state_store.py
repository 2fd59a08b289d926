"""What the leader of a partition does when the share coordinator refuses."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.broker.shares.persistence.state_store import ShareStateStore
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.read_share_group_state import PartitionResult

KEY = ShareKey("g", bytes(16), 0)
STATE = PartitionResult(partition=0, state_epoch=1, start_offset=7)


class Coordinator:
    """Gives one answer after the other."""

    def __init__(self, *answers: ErrorCode | PartitionResult) -> None:
        self.answers = list(answers)

    async def ask(self, *_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, ErrorCode):
            raise KafkaError(answer, "no")
        return answer


def store(*answers: ErrorCode | PartitionResult) -> ShareStateStore:
    return ShareStateStore(Coordinator(*answers))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION]
)
async def test_a_coordinator_that_is_behind_is_asked_again(code: ErrorCode) -> None:
    """The one that took over may not have heard of the topic yet."""
    assert await store(code, code, STATE).read(KEY, 3, lambda: True) == STATE


async def test_a_topic_that_is_gone_is_asked_for_until_this_broker_has_heard_of_it() -> None:
    leads = [True, True, False]
    gone = store(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(KafkaError) as refused:
        await gone.read(KEY, 3, lambda: leads.pop(0))
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_state_that_is_anothers_is_not_asked_for_again() -> None:
    with pytest.raises(KafkaError) as refused:
        await store(ErrorCode.FENCED_LEADER_EPOCH, STATE).read(KEY, 3, lambda: True)
    assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH
