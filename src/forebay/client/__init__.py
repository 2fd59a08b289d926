"""Producer, Consumer, Queue and Admin, on confluent-kafka: small, typed, sync and async.

One word, `delivery`, decides what happens to messages when something breaks; another, `profile`, chooses
between throughput and latency. docs/client.md lists the settings behind both.
"""

from __future__ import annotations

from forebay.client.admin import Admin, GroupInfo, ViewInfo
from forebay.client.aio.async_admin import AsyncAdmin
from forebay.client.aio.async_consumer import AsyncConsumer
from forebay.client.aio.async_processing import process_async
from forebay.client.aio.async_producer import AsyncProducer
from forebay.client.consumer import Consumer
from forebay.client.errors import (
    ClientError,
    DeliveryFailed,
    LockLost,
    ProducerFenced,
    QueueEmpty,
    TransactionAborted,
)
from forebay.client.messages import Message, Record
from forebay.client.presets import Delivery, Profile
from forebay.client.processing import process
from forebay.client.producer import Producer
from forebay.client.queues.async_queue import AsyncQueue
from forebay.client.queues.messages import QueueMessage, Reject
from forebay.client.queues.queue import Queue
from forebay.client.queues.work import WorkSummary
from forebay.client.queues.worker import worker

__all__ = [
    "Producer",
    "Consumer",
    "Admin",
    "process",
    "AsyncProducer",
    "AsyncConsumer",
    "AsyncAdmin",
    "process_async",
    "Queue",
    "AsyncQueue",
    "worker",
    "QueueMessage",
    "Reject",
    "WorkSummary",
    "Message",
    "Record",
    "GroupInfo",
    "ViewInfo",
    "Delivery",
    "Profile",
    "ClientError",
    "DeliveryFailed",
    "TransactionAborted",
    "ProducerFenced",
    "LockLost",
    "QueueEmpty",
]
