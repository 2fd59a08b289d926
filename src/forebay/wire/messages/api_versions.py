"""ApiVersions: the APIs and versions of a broker, requested before anything else."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, boolean, int16, int32, int64, string

OWN_SOFTWARE_NAME = "forebay"
"""The software name of Forebay's own clients; brokers list their own features for them."""


class ApiVersionsRequest(Request, api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Response, api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
