"""What a closed partition has to say about a batch that clients send for it, before the batch is passed on.

Its log takes no more of them. They go to the partition into which it is folded, which continues the
numbering of their producers. Two things only the closed partition knows. `before`: which batch of a producer
comes next, as long as the other partition has none of this producer. (It may have a marker, which has no
number.) And `repeats`: the batch is in the closed log already. That counts only if the other partition finds
the batch out of place. (Numbers start again at 0 after 2**31 records, so an old number alone says little.)

What a closed partition knows does not change any more. It passes nothing on before all of it is committed,
and every replica that may lead next has followed its leader and so has no more than that. So its next leader
says the same.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.cluster.images.topic_folds import Stop
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.partition.batch_rules import NO_LIMIT_MS, AppendPolicy, validate
from forebay.core.partition.folds.aliases import alias_of, named_by
from forebay.core.partition.producer_admission import Refused, Repeats, admit
from forebay.core.partition.producer_table import ProducerState
from forebay.errors import ErrorCode
from forebay.wire.batch import SEQUENCE_MASK, BatchHeader

OUT_OF_PLACE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""How a partition refuses a batch that does not come next and is none of the last ones."""
_REFUSED_HERE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
_FRAME_ONLY = AppendPolicy(max_message_bytes=2**31 - 1, timestamp_after_max_ms=NO_LIMIT_MS)


class Before(NamedTuple):
    """What a producer had sent for a partition when it was closed."""

    producer_epoch: int
    next_sequence: int

    def state(self, producer_id: int) -> ProducerState:
        return ProducerState(
            producer_id=producer_id, producer_epoch=self.producer_epoch, next_sequence=self.next_sequence
        )

    def is_behind(self, header: BatchHeader) -> bool:
        """Whether this is a batch that cannot be the next one, nor one from before."""
        ahead = (header.base_sequence - self.next_sequence) & SEQUENCE_MASK
        return header.producer_epoch == self.producer_epoch and 0 < ahead <= SEQUENCE_MASK // 2

    def is_newer(self, state: ProducerState) -> bool:
        """Whether a partition has not seen the producer's numbers since, at most a marker of its epoch."""
        if state.producer_epoch != self.producer_epoch:
            return state.producer_epoch < self.producer_epoch
        return not state.batches and not state.next_sequence


NOTHING_BEFORE = Before(-1, -1)
"""How brokers tell each other that a producer is not known."""


class PassOn(NamedTuple):
    """The batch goes to another partition, with what this one knows."""

    before: Before | None = None
    repeats: Repeats | None = None


def whole_header(batch: memoryview | None, now_ms: int) -> BatchHeader:
    """The header of a batch whose bytes are what its client has sent; raises KafkaError.

    It gets another checksum before it is passed on, so nobody could tell later. What the topic's settings
    say is for the partition that stores it.
    """
    return validate(batch, _FRAME_ONLY, now_ms)


def decide_closed(
    state: ProducerState | None, header: BatchHeader, known: PassOn | None = None
) -> PassOn | Refused:
    """What becomes of a batch for a closed partition; `state` is what the partition knows of its producer.

    `known`: what a partition knew from which the batch was passed on to this one.
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
    """What a partition knows of a producer, with what the closed partitions on the way know.

    The state itself if they know nothing newer, else a new one. `forgets`: the partition has had too many
    producers, and may have forgotten what it had of this one since it is passed on.
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
    """The header as the partition sees it to which a batch for partition `index` is passed on."""
    return header._replace(producer_id=alias_of(header.producer_id, index, generation))


def takes(topic: TopicImage, index: int, producer_id: int) -> bool:
    """Whether a partition is on the way of what a producer sends, under this id."""
    named = named_by(producer_id, index)
    return named.generation is None or Stop(index, named.generation) in topic.stops(named.partition)
