"""Decides about a batch that a client sends for a closed partition, before the batch is passed on.

The closed log takes no more batches. They go to the partition into which it is folded, which continues the
sequence numbers of their producers. Two things only the closed partition knows. `before`: the next sequence
number of a producer, while the other partition has no batch of this producer. (It may have a marker, which
has no number.) And `repeats`: the batch is in the closed log already. That counts only if the other partition
refuses the batch as out of order. (Numbers start again at 0 after 2**31 records, so an old number alone
proves little.)

The state of a closed partition no longer changes. It passes nothing on before all of its log is committed,
and every replica that may lead next has followed its leader and so has no more than that. So the next leader
decides the same.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.cluster.images.topic_folds import Stop
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.partition.batch_rules import NO_LIMIT_MS, AppendPolicy, validate
from forebay.core.partition.folds.aliases import alias_of, named_by
from forebay.core.partition.producers.producer_admission import Refused, Repeats, admit
from forebay.core.partition.producers.producer_table import ProducerState
from forebay.errors import ErrorCode
from forebay.wire.batch import BatchHeader

OUT_OF_PLACE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""The refusals of a batch that is neither the next one nor one of the last ones."""
_REFUSED_HERE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
_FRAME_ONLY = AppendPolicy(max_message_bytes=2**31 - 1, timestamp_after_max_ms=NO_LIMIT_MS)


class Before(NamedTuple):
    """The state of a producer in a partition when it was closed."""

    producer_epoch: int
    next_sequence: int

    def state(self, producer_id: int) -> ProducerState:
        return ProducerState(
            producer_id=producer_id, producer_epoch=self.producer_epoch, next_sequence=self.next_sequence
        )

    def is_behind(self, header: BatchHeader) -> bool:
        """True if this batch can be neither the next one nor an earlier one."""
        return header.is_behind(self.producer_epoch, self.next_sequence)

    def is_newer(self, state: ProducerState) -> bool:
        """True if a partition has had no batch of the producer since, at most a marker of its epoch."""
        if state.producer_epoch != self.producer_epoch:
            return state.producer_epoch < self.producer_epoch
        return not state.batches and not state.next_sequence


NOTHING_BEFORE = Before(-1, -1)
"""Means an unknown producer, in messages between brokers."""


class PassOn(NamedTuple):
    """The batch goes to another partition, with the knowledge of this one."""

    before: Before | None = None
    repeats: Repeats | None = None


def whole_header(batch: memoryview | None, now_ms: int) -> BatchHeader:
    """The header of a batch with a correct checksum; raises KafkaError.

    The batch gets another checksum before it is passed on, so it must be checked here. The partition that
    stores it checks the topic's settings.
    """
    return validate(batch, _FRAME_ONLY, now_ms)


def decide_closed(
    state: ProducerState | None, header: BatchHeader, known: PassOn | None = None
) -> PassOn | Refused:
    """Decide about a batch for a closed partition; `state` is the partition's state of its producer.

    `known` is the knowledge of an earlier closed partition that has passed the batch on to this one.
    """
    earlier = known or PassOn()
    if state is None:
        return earlier
    if earlier.before is not None and earlier.before.is_newer(state):
        return earlier
    decision = admit(state, header)
    if isinstance(decision, Refused) and decision.code in _REFUSED_HERE:
        return decision
    repeats = decision if isinstance(decision, Repeats) else earlier.repeats
    return PassOn(Before(state.producer_epoch, state.next_sequence), repeats)


def assumed_state(
    state: ProducerState | None, known: PassOn, header: BatchHeader, *, forgets: bool = False
) -> ProducerState | None:
    """The state of a producer, combined with the knowledge of the closed partitions before this one.

    It is the state itself if they know nothing newer. `forgets`: the partition has had too many producers,
    and may have forgotten this one.
    """
    before = known.before
    if before is None or (state is not None and not before.is_newer(state)):
        return state
    if forgets and state is None and before.is_behind(header):
        return None
    assumed = before.state(header.producer_id)
    if state is not None:
        assumed.coordinator_epoch = state.coordinator_epoch
    return assumed


def aliased(header: BatchHeader, index: int, generation: int | None) -> BatchHeader:
    """The header with the alias of a batch for partition `index`, as it is passed on."""
    return header._replace(producer_id=alias_of(header.producer_id, index, generation))


def takes(topic: TopicImage, index: int, producer_id: int) -> bool:
    """True if batches with this producer id are stored in, or passed on by, a partition."""
    named = named_by(producer_id, index)
    return named.generation is None or Stop(index, named.generation) in topic.stops(named.partition)
