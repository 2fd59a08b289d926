"""ListGroups: the groups that a broker coordinates."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, api_key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Response, api_key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
