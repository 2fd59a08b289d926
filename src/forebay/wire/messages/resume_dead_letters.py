"""ResumeDeadLetters: tells a leader that it has waiting dead letters. Between brokers; not in Kafka."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, int16, int32, string, uuid


class ResumeDeadLettersRequest(Request, api_key=ApiKey.RESUME_DEAD_LETTERS, flexible=0):
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class ResumeDeadLettersResponse(Response, api_key=ApiKey.RESUME_DEAD_LETTERS, flexible=0):
    error_code: int = int16()
