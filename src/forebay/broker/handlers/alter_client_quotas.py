"""AlterClientQuotas: set and remove quotas; each entity stands or falls alone."""

from __future__ import annotations

from collections import Counter

from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.quota_image import alter_quota
from forebay.core.quotas.entities import QuotaEntity, read_entity
from forebay.core.quotas.keys import QuotaOp
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import alter_client_quotas as wire


async def handle(
    metadata: Metadata, _context: RequestContext, request: wire.AlterClientQuotasRequest
) -> wire.AlterClientQuotasResponse:
    entities = [_entity(entry) for entry in request.entries]
    counts = Counter(each for each in entities if isinstance(each, QuotaEntity))
    results = []
    for entry, entity in zip(request.entries, entities, strict=True):
        result = wire.ResponseEntryData(entity=entry.entity)
        try:
            if isinstance(entity, KafkaError):
                raise entity
            if counts[entity] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{entity} is in the request more than once")
            await _alter(metadata, entity, entry, validate_only=request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return wire.AlterClientQuotasResponse(entries=results)


def _entity(entry: wire.EntryData) -> QuotaEntity | KafkaError:
    try:
        return read_entity((each.entity_type, each.entity_name) for each in entry.entity)
    except KafkaError as error:
        return error


async def _alter(
    metadata: Metadata, entity: QuotaEntity, entry: wire.EntryData, *, validate_only: bool
) -> None:
    ops = [QuotaOp(op.key, None if op.remove else op.value) for op in entry.ops]
    if validate_only:
        alter_quota(metadata.image.quotas, entity, ops)
    else:
        await metadata.change(lambda image: alter_quota(image.quotas, entity, ops))
