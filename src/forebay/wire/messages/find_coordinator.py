"""FindCoordinator: the coordinator of a group, a transactional id or a share partition."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Request, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="4+", default=None)


class FindCoordinatorResponse(Response, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1+", default=None)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
