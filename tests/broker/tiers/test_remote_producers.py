"""The producers at any offset of the object store, for replicas that begin there."""

from __future__ import annotations

from pathlib import Path

from forebay.broker.tiers.remote_producers import producers_at
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.reading import read_manifest
from forebay.wire.tiers.layout import manifest_key
from forebay.wire.tiers.manifest import encode_manifest
from support.brokers.local_broker import local_broker
from support.brokers.tiered import copied_to, create_tiered, eventually, settings, value
from support.clients.wire_client import WireClient, append, batch

PRODUCER = 7


def test_producers_are_known_at_every_offset_wherever_segments_end(tmp_path: Path, topic: str) -> None:
    """The local log of a leader begins where its own segments do, and another may have copied."""
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        for number in range(40):
            sent = batch(value(number), producer_id=PRODUCER, producer_epoch=0, base_sequence=number)
            assert append(client, topic, sent).error_code == 0
        assert eventually(lambda: copied_to(store, topic_id) > 30)
    objects, end = LocalDirectory(str(store)), copied_to(store, topic_id)
    found = {offset: producers_at(objects, topic_id, 0, offset) for offset in range(end + 1)}
    assert found.pop(0) == b""
    last = {
        offset: [each.last_sequence for each in ProducerTable.from_bytes(found[offset])] for offset in found
    }
    assert last == {offset: [offset - 1] for offset in found}
    # One that was made anew after retention does not tell what is deleted: it begins at 0.
    manifest = read_manifest(objects, topic_id, 0)
    assert manifest is not None
    later = manifest._replace(start_offset=0, segments=manifest.segments[2:])
    (store / manifest_key(topic_id, 0)).write_bytes(encode_manifest(later))
    assert producers_at(objects, topic_id, 0, later.first_offset) == b""
