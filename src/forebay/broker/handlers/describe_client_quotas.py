"""DescribeClientQuotas: the quotas that match a filter."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.quota_image import QuotaImage
from forebay.core.quotas.filters import read_filter
from forebay.errors import KafkaError
from forebay.wire.messages import describe_client_quotas as wire


def handle(
    metadata: Metadata, _context: RequestContext, request: wire.DescribeClientQuotasRequest
) -> wire.DescribeClientQuotasResponse:
    components = ((each.entity_type, each.match_type, each.match) for each in request.components)
    try:
        wanted = read_filter(components, strict=request.strict)
    except KafkaError as error:
        return wire.DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    found = [quota for quota in metadata.image.quotas.values() if wanted.matches(quota.entity)]
    found.sort(key=lambda quota: [(kind, name or "") for kind, name in quota.entity.parts])
    return wire.DescribeClientQuotasResponse(entries=[_entry(quota) for quota in found])


def _entry(quota: QuotaImage) -> wire.EntryData:
    return wire.EntryData(
        entity=[
            wire.EntityData(entity_type=kind, entity_name=name)
            for kind, name in sorted(
                quota.entity.parts
            )  # the client-id before the user, as Kafka's tools print
        ],
        values=[wire.ValueData(key=key, value=value) for key, value in sorted(quota.values.items())],
    )
