"""AppendCopies: records copied from a folded partition, for the leader of the one that takes over.

Between brokers; not in Kafka. The batch is as it will be stored, except its offset and leader epoch.
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, int16, int32, records, string, uuid


class AppendCopiesRequest(Request, api_key=ApiKey.APPEND_COPIES, flexible=0):
    topic_id: bytes = uuid()
    index: int = int32()
    records: memoryview | None = records(nullable="0+")


class AppendCopiesResponse(Response, api_key=ApiKey.APPEND_COPIES, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
