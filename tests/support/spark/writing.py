"""What tests of Spark's sink share: an exactly-once query without Spark, which can die between any two steps.

`Query` does what Spark does with a sink: batches in order, each divided among tasks, a commit on the driver,
a note in the checkpoint when that has returned; started again, it repeats the first batch that has no note.
A `Mortality` lets the process die at one of its exchanges with brokers, before a request or before its
answer, and nothing that it might do afterwards reaches anybody.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa

from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.transactions import exactly_once
from forebay.spark.sink.transactions.exactly_once import Prepared
from forebay.spark.sink.transactions.participants import RUN_CHARACTERS, Attempt
from forebay.spark.sink.transactions.renewal import Job, job_of
from forebay.spark.wire.connections import BrokerConnection, Cluster
from forebay.wire.fields import Request
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from support.clients.wire_client import LATEST, LIST_OFFSETS, WireClient
from support.spark.reading import batch_reader, values

COLUMNS = Columns(value=0)
DEADLINE_S = 120.0


class Died(BaseException):
    """The process is gone: no handler may do anything about it."""


class Mortality:
    def __init__(self, dies_at: int | None) -> None:
        self.steps = 0
        self._dies_at = dies_at

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Mortality]:
        real_post, real_read = BrokerConnection.post, BrokerConnection.read

        def post(connection: BrokerConnection, request: Request, *arguments: Any) -> None:
            self._step(type(request))
            real_post(connection, request, *arguments)

        def read(connection: BrokerConnection, **named: Any) -> Any:
            self._step(connection.oldest_unanswered)
            return real_read(connection, **named)

        with patch.object(BrokerConnection, "post", post), patch.object(BrokerConnection, "read", read):
            yield self

    def _step(self, kind: type[Request]) -> None:
        if kind is ApiVersionsRequest:
            return  # a greeting, which changes nothing
        self.steps += 1
        if self._dies_at is not None and self.steps >= self._dies_at:
            raise Died


class Query:
    """`rows` has the values of each task of each batch."""

    def __init__(self, bootstrap: str, topic: str, rows: list[list[list[bytes]]], **options: Any) -> None:
        self.name = str(uuid4())
        self.stream_query = ""
        """The id in the checkpoint, where the stream has a name of its own."""
        self.checkpoint = 0
        """How many batches Spark believes to be committed."""
        self.rows = rows
        self.clusters: list[Cluster] = []
        self.options = WriteOptions(bootstrap=bootstrap, topic=topic, exactly_once=True, **options)

    def run(self, dies_at: int | None = None) -> Run:
        return Run(self, dies_at)

    def cluster(self) -> Cluster:
        self.clusters.append(Cluster(self.options.bootstrap, self.options.connection))
        return self.clusters[-1]

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()


class Run:
    """From a start of the query to its end or its death."""

    def __init__(self, query: Query, dies_at: int | None = None) -> None:
        self.query = query
        self.run_id = uuid4().hex[:RUN_CHARACTERS]
        self.cluster = query.cluster()
        self.mortality = Mortality(dies_at)

    def to_the_end(self) -> bool:
        """Whether it lived to see the end."""
        try:
            with self.mortality():
                while self.query.checkpoint < len(self.query.rows):
                    self.commit(self.prepare_all())
                    self.query.checkpoint += 1
        except Died:
            return False
        finally:
            self.cluster.close()
        return True

    def job(self) -> Job:
        return job_of(self.query.options, self.query.name, self.run_id)

    def prepare_all(self) -> list[Prepared]:
        return [self.prepare(task) for task in range(len(self.query.rows[self.query.checkpoint]))]

    def prepare(self, task: int, retry: int = 0) -> Prepared:
        query = self.query
        attempt = Attempt(query.name, self.run_id, query.checkpoint, task, retry, query=query.stream_query)
        batch = pa.record_batch({"value": pa.array(query.rows[query.checkpoint][task], pa.binary())})
        return exactly_once.prepare(self.cluster, query.options, COLUMNS, attempt, iter([batch]))

    def commit(self, messages: list[Prepared]) -> None:
        exactly_once.commit(self.cluster, messages)


def one_by_one() -> contextlib.AbstractContextManager[object]:
    """As if the brokers did not know how to end transactions together."""
    return patch("forebay.spark.sink.transactions.batch_decisions.state_partition_of", return_value=None)


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """The values that readers of committed data see now, sorted."""
    return values(batch_reader(bootstrap, subscribe=topic, kafka_isolation_level="read_committed"))


def wait_until_closed(bootstrap: str, topic: str, partitions: int = 2) -> None:
    """Return when no transaction holds up readers of committed data."""
    deadline = time.monotonic() + DEADLINE_S
    with WireClient(bootstrap) as client:
        while _ends(client, topic, partitions, 0) != _ends(client, topic, partitions, 1):
            assert time.monotonic() < deadline, "a transaction is left open"
            time.sleep(0.01)


def _ends(client: WireClient, topic: str, partitions: int, isolation_level: int) -> list[int]:
    wanted = [ListOffsetsPartition(partition_index=n, timestamp=LATEST) for n in range(partitions)]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=wanted)],
    )
    (found,) = client.call(request, LIST_OFFSETS).topics
    return [partition.offset for partition in found.partitions]
