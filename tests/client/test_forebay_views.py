"""Views by forebay.client."""

from __future__ import annotations

import pytest

from forebay.client import Admin, AsyncAdmin, ClientError, Consumer, Producer, ViewInfo
from forebay.testing import Broker


def test_a_view_from_creation_to_deletion(forebay_broker: Broker, forebay_topic: str) -> None:
    servers, view = forebay_broker.bootstrap_servers, f"{forebay_topic}-view"
    admin = Admin(servers)
    admin.create_view(view, source=forebay_topic, where="key = 'b'", keep_tombstones=True)
    admin.create_view(view, source=forebay_topic, exist_ok=True)
    assert admin.views()[view] == ViewInfo(
        source=forebay_topic, where="key = 'b'", select=None, keep_tombstones=True
    )
    with Producer(servers) as producer:
        for key in "abcb":
            producer.send(forebay_topic, "value", key=key)
    with Consumer(servers, view, group=view) as consumer:
        assert [next(consumer).key for _ in range(2)] == [b"b", b"b"]
    admin.delete_view(view)
    assert view not in admin.views()
    admin.delete_view(view, missing_ok=True)
    with pytest.raises(ClientError, match="not a view"):
        admin.delete_view(forebay_topic)
    with pytest.raises(ClientError) as error:
        admin.create_view(view, source=forebay_topic, where="key =")
    assert error.value.name == "INVALID_CONFIG"


async def test_the_same_awaited(forebay_broker: Broker, forebay_topic: str) -> None:
    view = f"{forebay_topic}-view"
    async with AsyncAdmin(forebay_broker.bootstrap_servers) as admin:
        await admin.create_view(view, source=forebay_topic)
        assert (await admin.views())[view].source == forebay_topic
        await admin.delete_view(view)
        assert view not in await admin.views()
