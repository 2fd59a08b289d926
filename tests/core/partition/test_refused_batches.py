"""What comes behind a refused batch is refused for the same reason, and nothing else is."""

from __future__ import annotations

from forebay.core.partition.producers.producer_table import BATCHES_RETAINED
from forebay.core.partition.producers.refused_batches import RefusedBatches
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages.produce import PartitionProduceData, TopicProduceData
from support.clients.wire_client import batch

NOT_LEADER = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")
TOPIC = TopicProduceData(name="t", topic_id=ZERO_UUID)
OTHER = TopicProduceData(name="u", topic_id=ZERO_UUID)


def numbered(
    sequence: int, *, producer_id: int = 7, producer_epoch: int = 0, index: int = 0
) -> PartitionProduceData:
    data = batch(b"v", producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
    return PartitionProduceData(index=index, records=memoryview(bytearray(data)))


def refused_at(sequence: int) -> RefusedBatches:
    refused = RefusedBatches()
    refused.add(TOPIC, numbered(sequence), NOT_LEADER)
    return refused


def code(
    refused: RefusedBatches, data: PartitionProduceData, topic: TopicProduceData = TOPIC
) -> ErrorCode | None:
    reason = refused.reason(topic, data)
    return None if reason is None else reason.code


def test_only_what_comes_behind_it_shares_its_fate() -> None:
    refused = refused_at(5)
    assert code(refused, numbered(6)) is code(refused, numbered(900)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(refused, numbered(5)) is None
    assert code(refused, numbered(4)) is None
    assert code(refused, numbered(6, producer_id=8)) is None
    assert code(refused, numbered(6, producer_epoch=1)) is None
    assert code(refused, numbered(6, index=1)) is None
    assert code(refused, numbered(6), OTHER) is None


def test_numbers_go_on_at_0_after_the_last() -> None:
    refused = refused_at(2**31 - 1)
    assert code(refused, numbered(0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(refused, numbered(2**31 - 2)) is None


def test_the_first_of_several_counts_and_is_forgotten_when_it_is_taken() -> None:
    refused = refused_at(5)
    refused.add(TOPIC, numbered(6), NOT_LEADER)
    assert code(refused, numbered(6)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused.taken(TOPIC, numbered(5))
    assert code(refused, numbered(7)) is None


def test_what_was_refused_behind_it_counts_when_it_is_forgotten() -> None:
    """The one before may be stored elsewhere, and never come again."""
    refused = refused_at(4)
    for _ in range(BATCHES_RETAINED):
        assert refused.begin_request()
        assert code(refused, numbered(5)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused.add(TOPIC, numbered(5), NOT_LEADER)
    assert refused.begin_request()
    assert code(refused, numbered(5)) is None
    assert code(refused, numbered(6)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused.taken(TOPIC, numbered(5))
    assert code(refused, numbered(6)) is None


def test_each_batch_of_a_window_waits_for_those_before_it_only() -> None:
    refused = refused_at(4)
    for sequence in (5, 6, 7):
        assert refused.begin_request()
        refused.add(TOPIC, numbered(sequence), NOT_LEADER)
    for taken in (4, 5, 6):
        assert refused.begin_request()
        assert code(refused, numbered(taken)) is None
        assert code(refused, numbered(8)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused.taken(TOPIC, numbered(taken))
    assert code(refused, numbered(7)) is None


def test_a_window_that_is_refused_again_and_again_takes_no_more_memory() -> None:
    refused = refused_at(0)
    for _ in range(1_000):
        for sequence in range(BATCHES_RETAINED):
            assert refused.begin_request()
            refused.add(TOPIC, numbered(sequence), NOT_LEADER)
    assert [len(batches) for batches in refused._refused.values()] == [BATCHES_RETAINED]


def test_an_earlier_one_takes_its_place() -> None:
    refused = refused_at(5)
    refused.add(TOPIC, numbered(3), NOT_LEADER)
    assert code(refused, numbered(4)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_is_refused_for_good_or_has_no_numbers_is_not_waited_for() -> None:
    refused = RefusedBatches()
    refused.add(TOPIC, numbered(5), KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
    refused.add(TOPIC, numbered(-1, producer_id=-1), NOT_LEADER)
    refused.add(TOPIC, PartitionProduceData(index=0, records=None), NOT_LEADER)
    assert not refused.begin_request()
    assert code(refused, numbered(6)) is None


def test_it_is_forgotten_after_as_many_requests_as_may_be_under_way() -> None:
    refused = refused_at(5)
    for _ in range(BATCHES_RETAINED - 2):
        assert refused.begin_request()
        refused.add(TOPIC, numbered(6), NOT_LEADER)
    assert refused.begin_request()
    refused.add(TOPIC, numbered(5), NOT_LEADER)
    for _ in range(BATCHES_RETAINED):
        assert refused.begin_request()
    assert not refused.begin_request()


def test_so_many_are_remembered_at_most() -> None:
    refused = RefusedBatches()
    for index in range(1_000):
        refused.add(TOPIC, numbered(5, index=index), NOT_LEADER)
    remembered = [index for index in range(1_000) if code(refused, numbered(6, index=index)) is not None]
    assert remembered == list(range(744, 1_000))


def test_a_name_that_no_topic_can_have_takes_no_memory() -> None:
    refused, longest = RefusedBatches(), TopicProduceData(name="n" * 249, topic_id=ZERO_UUID)
    unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
    assert not refused.add(TopicProduceData(name="n" * 250, topic_id=ZERO_UUID), numbered(5), unknown)
    assert refused.add(longest, numbered(5), unknown)
    assert code(refused, numbered(6), longest) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
