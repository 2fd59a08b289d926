"""Every API this broker serves; what is not in this table is not advertised and not answered."""

from __future__ import annotations

from forebay.broker.dispatch import Endpoint
from forebay.broker.handlers import (
    api_versions,
    delete_records,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

ENDPOINTS: dict[int, Endpoint] = {
    endpoint.api_key: endpoint
    for endpoint in (
        produce.ENDPOINT,
        fetch.ENDPOINT,
        list_offsets.ENDPOINT,
        metadata.ENDPOINT,
        find_coordinator.ENDPOINT,
        api_versions.ENDPOINT,
        delete_records.ENDPOINT,
        init_producer_id.ENDPOINT,
        offset_for_leader_epoch.ENDPOINT,
    )
}
