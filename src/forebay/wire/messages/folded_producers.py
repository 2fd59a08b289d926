"""FoldedProducers: a partition's state of producers whose messages go to another one from now on.

Between brokers; not in Kafka. The leader of the other partition asks, before it accepts any messages of them
(`core/cluster/topics/more_partitions.py`).
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class WantedNumbers(Struct):
    named: int = int32()
    """The partition that the producers have named."""
    generation: int = int16()
    """The generation of the fold through which their messages came."""


class FoldedProducersRequest(Request, api_key=ApiKey.FOLDED_PRODUCERS, flexible=0):
    topic_id: bytes = uuid()
    index: int = int32()
    """The partition that has accepted them."""
    revision: int = int64()
    """The revision of the topic's record by which it accepts no more of them."""
    after: int = int64(default=-1)
    """Only ids greater than this one: there may be too many for one answer."""
    wanted: list[WantedNumbers] = array(WantedNumbers)


class FoldedBatch(Struct):
    base_sequence: int = int32()
    last_sequence: int = int32()
    timestamp: int = int64()
    in_transaction: bool = boolean()


class FoldedProducer(Struct):
    producer_id: int = int64()
    """The alias under which the partition has kept it."""
    producer_epoch: int = int16()
    next_sequence: int = int32()
    batches: list[FoldedBatch] = array(FoldedBatch)


class FoldedProducersResponse(Response, api_key=ApiKey.FOLDED_PRODUCERS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    is_last: bool = boolean(default=True)
    """True if there are no more of them."""
    producers: list[FoldedProducer] = array(FoldedProducer)
