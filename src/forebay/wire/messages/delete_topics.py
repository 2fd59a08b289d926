"""DeleteTopics: delete topics by name or by id."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(nullable="6+", default=None)
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Request, api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    topic_names: list[str] = array(string, "1-5")
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


class DeleteTopicsResponse(Response, api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
