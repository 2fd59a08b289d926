"""What brokers say of each other, and in whose name, while registrations come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.broker import membership
from forebay.coordination.store import Delete
from forebay.errors import ConfigError, ErrorCode
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import create_topic

CREATE_TOPICS, METADATA = 7, 12
TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await running.in_sync(TOPIC)
        yield running


async def test_a_broker_names_itself_though_nobody_is_registered(cluster: LocalCluster) -> None:
    """So it is for a moment when etcd comes back after all leases ended. Clients need somebody to ask."""
    broker = cluster[2]
    keys = broker.metadata.keys
    await broker.store.txn(deletes=[Delete(key=keys.broker(node)) for node in cluster.nodes])
    await eventually(lambda: not broker.image.brokers)
    answer = await cluster.ask(2, MetadataRequest(topics=[]), METADATA)
    assert [found.node_id for found in answer.brokers] == [2]


async def test_nobody_speaks_for_a_live_broker(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process of a node, on another disk, waits for the lease of the first and touches nothing."""
    before = cluster.state(TOPIC)
    # The lease never ends here, so the second need not wait for as long as it takes.
    monkeypatch.setattr(membership, "_EXPIRY_MARGIN_S", -7.0)
    with pytest.raises(ExceptionGroup) as caught:
        await cluster.start(1, "another-disk")
    (refusal,) = caught.value.exceptions
    assert isinstance(refusal, ConfigError)
    assert "give each broker its own node.id" in str(refusal)
    assert cluster.state(TOPIC) == before
    assert before.isr and 1 in before.isr
