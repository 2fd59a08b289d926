"""ApiVersions: exactly what is served, from the same table that requests are dispatched by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import API_VERSIONS_KEY, Endpoint, RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from forebay.wire.messages.end_txn import END_TOGETHER, LOOKS_AFTER_FAMILIES

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

FEATURES = {"transaction.version": 2}
"""Java producers raise their epoch with every transaction only where this says so."""

_ZERO_MINIMUM_FROM = 4
"""Java clients of the versions before cannot read a feature whose lowest level is 0."""


def handle(
    broker: Broker, context: RequestContext, request: ApiVersionsRequest | None
) -> ApiVersionsResponse:
    """A request of a version that is not served comes as None."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION if request is None else ErrorCode.NONE,
        api_keys=[
            ApiVersion(
                api_key=endpoint.api_key,
                min_version=endpoint.min_version,
                max_version=endpoint.max_version,
            )
            for endpoint in broker.endpoints.values()
        ],
        supported_features=_supported(context.api_version),
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in FEATURES.items()
        ],
    )


def _supported(version: int) -> list[SupportedFeatureKey]:
    own = SupportedFeatureKey(name=END_TOGETHER, min_version=1, max_version=LOOKS_AFTER_FAMILIES)
    if version < _ZERO_MINIMUM_FROM:
        return [own]
    return [
        own,
        *(
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
        ),
    ]


ENDPOINT = Endpoint(API_VERSIONS_KEY, 0, 4, handle)
