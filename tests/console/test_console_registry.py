"""Values of a schema registry in the console."""

from __future__ import annotations

import io
import json

import fastavro
from confluent_kafka import Producer

from forebay.client import Admin
from forebay.testing import Broker
from support.console.running_console import running_console
from support.spark.schema_registry import running_registry
from support.waiting import Patience

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}


PROTOBUF = """
syntax = "proto3";
message Order { int64 id = 1; string who = 2; Address to = 3; }
message Address { string town = 1; }
"""
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
    "required": ["id"],
}


def _frame(schema_id: int, rest: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + rest


def _avro(schema_id: int, order: dict[str, object]) -> bytes:
    stream = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    stream.seek(5)
    fastavro.schemaless_writer(stream, SCHEMA, order)
    return stream.getvalue()


def test_values_of_a_registry_are_shown_as_json_and_others_as_they_are(broker: Broker) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=1)
    with running_registry() as registry:
        schema_id = registry.add("orders-value", {"schema": json.dumps(SCHEMA)})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for value in (_avro(schema_id, {"id": 7, "who": "Ada"}), _avro(99, {"id": 8, "who": "Bo"}), b"plain"):
            producer.produce("orders", value=value)
        producer.flush()
        with running_console(broker.bootstrap_servers, registry=registry.address) as console:
            patience = Patience("the topic is seen")
            while console.ask("GET", "/api/local/topics/orders").status != 200:
                patience.check()
            rows = console.get("local/topics/orders/messages?from=beginning")["rows"]
    known, unknown, plain = (row["value"] for row in rows)
    assert (known["kind"], json.loads(known["text"])) == ("json", {"id": 7, "who": "Ada"})
    assert known["schema_id"] == schema_id
    assert (unknown["kind"], unknown["schema_id"]) == ("hex", 99)
    assert (plain["kind"], plain["text"]) == ("text", "plain")


def test_values_of_protobuf_and_json_schema_are_shown_as_json_with_nested_messages(broker: Broker) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("parcels", partitions=1)
    with running_registry() as registry:
        protobuf = registry.add("parcels-value", {"schema": PROTOBUF, "schemaType": "PROTOBUF"})
        json_schema = registry.add("others-value", {"schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        order = b"\x08\x07" + b"\x12\x03Ada" + b"\x1a\x06\x0a\x04Bonn"
        producer.produce("parcels", value=_frame(protobuf, b"\0" + order))
        producer.produce("parcels", value=_frame(json_schema, b'{"id": 8, "who": "Bo"}'))
        producer.produce("parcels", value=_frame(protobuf, b"\2\2" + b"\x0a\x04Bonn"))  # the second message
        producer.produce("parcels", value=_frame(protobuf, b"\0\x08"), key=b"cut off")
        producer.flush()
        with running_console(broker.bootstrap_servers, registry=registry.address) as console:
            patience = Patience("the topic is seen")
            while console.ask("GET", "/api/local/topics/parcels").status != 200:
                patience.check()
            rows = console.get("local/topics/parcels/messages?from=beginning")["rows"]
    first, second, address, broken = (row["value"] for row in rows)
    assert first["schema_id"] == protobuf
    assert json.loads(first["text"]) == {"id": 7, "who": "Ada", "to": {"town": "Bonn"}}
    assert json.loads(second["text"]) == {"id": 8, "who": "Bo"}
    assert json.loads(address["text"]) == {"town": "Bonn"}
    assert (broken["kind"], broken["schema_id"]) == ("hex", protobuf), "what does not fit is shown as bytes"
