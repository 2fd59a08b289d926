"""HandOverNumbers: before a closed partition is removed, another one learns its producers' sequence numbers.

Between brokers; not in Kafka. The leader of the closed partition sends them to the leader of the partition
that takes its messages.
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, array, int16, int32, int64, string, uuid
from forebay.wire.messages.folded_producers import FoldedProducer


class HandOverNumbersRequest(Request, api_key=ApiKey.HAND_OVER_NUMBERS, flexible=0):
    topic_id: bytes = uuid()
    index: int = int32()
    """The partition that takes the messages."""
    revision: int = int64()
    """The revision of the topic's record by which it does."""
    producers: list[FoldedProducer] = array(FoldedProducer)
    """Under the aliases by which it keeps them."""


class HandOverNumbersResponse(Response, api_key=ApiKey.HAND_OVER_NUMBERS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
