"""UpdateFeatures: levels come with the program, so that only what is in force can be asked for."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.core.cluster.features import SAFE_DOWNGRADE, UPGRADE, Update, refusals
from forebay.errors import ErrorCode
from forebay.wire.messages import update_features as wire

_UPGRADE_TYPES_FROM = 1
_RESULTS_UNTIL = 1
"""Later versions have no results of each feature. With an error of the whole request none has any."""


def handle(context: RequestContext, request: wire.UpdateFeaturesRequest) -> wire.UpdateFeaturesResponse:
    version = context.api_version
    refused = refusals(_update(each, version) for each in request.feature_updates)
    reason = next(filter(None, refused.values()), None)
    if reason is not None:
        message = f"The update failed for all features since the following feature had an error: {reason}"
        return wire.UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message)
    if version > _RESULTS_UNTIL:
        return wire.UpdateFeaturesResponse()
    return wire.UpdateFeaturesResponse(
        results=[wire.UpdatableFeatureResult(feature=name) for name in refused]
    )


def _update(key: wire.FeatureUpdateKey, version: int) -> Update:
    if version >= _UPGRADE_TYPES_FROM:
        return Update(key.feature, key.max_version_level, key.upgrade_type)
    return Update(key.feature, key.max_version_level, SAFE_DOWNGRADE if key.allow_downgrade else UPGRADE)
