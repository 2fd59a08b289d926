"""Heartbeat: stay a member of a classic group."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, int16, int32, string


class HeartbeatRequest(Request, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
