"""ApiVersions: exactly what is served, from the same table that requests are dispatched by.

APIs that are not Kafka's are listed for our own clients only: others have no use for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

from forebay.broker.net.request_context import RequestContext
from forebay.core.cluster.features import FEATURES
from forebay.errors import ErrorCode
from forebay.wire.api_keys import OWN_KEYS_FROM
from forebay.wire.frames import EncodedResponse
from forebay.wire.messages import api_versions as wire
from forebay.wire.messages.end_txn import END_TOGETHER, LOOKS_AFTER_FAMILIES

_SOFTWARE_CHARS_MAX = 100
_ZERO_MINIMUM_FROM = 4
"""Java clients of the versions before cannot read a feature whose lowest level is 0."""


class Served(Protocol):
    """One API of the table."""

    @property
    def min_version(self) -> int: ...
    @property
    def max_version(self) -> int: ...


class ApiVersions:
    """Anybody may ask, also before a login. So each of the few answers is encoded once."""

    def __init__(self, served: Mapping[int, Served]) -> None:
        self._served = served
        self._encoded: dict[tuple[int, bool, bool], EncodedResponse] = {}
        """By version, whether our own client asks, and whether its version is served."""

    def handle(
        self, context: RequestContext, request: wire.ApiVersionsRequest | None
    ) -> wire.ApiVersionsResponse | EncodedResponse:
        """A request of a version that is not served comes as None."""
        own = request is not None and request.client_software_name == wire.OWN_SOFTWARE_NAME
        if request is not None and request.client_software_name:
            context.connection.software = _software(request)
        version, served = context.api_version, request is not None
        if context.complete is not None:  # it is changed for this client
            return self._response(version, own=own, served=served)
        encoded = self._encoded.get((version, own, served))
        if encoded is None:
            encoded = EncodedResponse(version, self._response(version, own=own, served=served))
            self._encoded[version, own, served] = encoded
        return encoded

    def _response(self, version: int, *, own: bool, served: bool) -> wire.ApiVersionsResponse:
        return wire.ApiVersionsResponse(
            error_code=ErrorCode.NONE if served else ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                wire.ApiVersion(
                    api_key=api_key,
                    min_version=api.min_version,
                    max_version=api.max_version,
                )
                for api_key, api in self._served.items()
                if own or api_key < OWN_KEYS_FROM
            ],
            supported_features=_supported(version, own=own),
            finalized_features_epoch=0,
            finalized_features=[
                wire.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in FEATURES.items()
            ],
        )


def handle(
    versions: ApiVersions, context: RequestContext, request: wire.ApiVersionsRequest | None
) -> wire.ApiVersionsResponse | EncodedResponse:
    return versions.handle(context, request)


def _software(request: wire.ApiVersionsRequest) -> str:
    """For the log."""
    return _shared(f"{request.client_software_name} {request.client_software_version}"[:_SOFTWARE_CHARS_MAX])


@lru_cache(maxsize=256)
def _shared(text: str) -> str:
    """Many connections have the same text, so they share one copy. Interned it would stay for ever in some
    versions of Python, and anybody can send new ones."""
    return text


def _supported(version: int, *, own: bool) -> list[wire.SupportedFeatureKey]:
    """Features that are not Kafka's are listed for our own clients only: others have no use for them."""
    found = []
    if own:
        found.append(
            wire.SupportedFeatureKey(name=END_TOGETHER, min_version=1, max_version=LOOKS_AFTER_FAMILIES)
        )
    if version >= _ZERO_MINIMUM_FROM:
        found += [
            wire.SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
        ]
    return found
