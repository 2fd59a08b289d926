"""Producer, Consumer and Admin for people, on confluent-kafka: small, typed, sync and async.

One word, `delivery`, decides what happens to messages when something breaks; another, `profile`, whether
throughput or latency matters. docs/client.md lists the settings behind both.
"""

from __future__ import annotations

from forebay.client.admin import Admin, GroupInfo
from forebay.client.async_admin import AsyncAdmin
from forebay.client.async_consumer import AsyncConsumer
from forebay.client.async_processing import process_async
from forebay.client.async_producer import AsyncProducer
from forebay.client.consumer import Consumer
from forebay.client.errors import ClientError, DeliveryFailed, ProducerFenced, TransactionAborted
from forebay.client.messages import Message, Record
from forebay.client.presets import Delivery, Profile
from forebay.client.processing import process
from forebay.client.producer import Producer

__all__ = [
    "Producer",
    "Consumer",
    "Admin",
    "process",
    "AsyncProducer",
    "AsyncConsumer",
    "AsyncAdmin",
    "process_async",
    "Message",
    "Record",
    "GroupInfo",
    "Delivery",
    "Profile",
    "ClientError",
    "DeliveryFailed",
    "TransactionAborted",
    "ProducerFenced",
]
