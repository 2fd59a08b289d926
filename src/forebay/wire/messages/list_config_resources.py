"""ListConfigResources: the resources that have settings, by type. Version 0 lists client metrics only."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(
    Response, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
