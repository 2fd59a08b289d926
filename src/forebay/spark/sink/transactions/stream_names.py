"""Names of what a stream writes in foreachBatch, where it may write several times.

A batch that Spark repeats has to find what it has written before, under the name of the stream. Two writes of
one batch to different topics have different rows, so each topic has a name of its own. Two writes to one
topic cannot be told apart by name, but by the run of the query: only another run repeats a batch. So the run
of such a write is that of the query, followed by one of the write itself, and a second write from the same
run is an error (`exactly_once.py`). A run that finds the first write decided by an earlier run notes itself
with the decision, so that this holds for its own second write, too.

Earlier versions had one name for all topics, and runs of the write only. A stream that was begun with them
goes on under its name, and with such runs, by which its record is recognised.
"""

from __future__ import annotations

import uuid

from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.participants import OWN_SPACE, RUN_CHARACTERS, name_for_topic, run_in
from forebay.spark.wire.connections import Cluster


def name_of(cluster: Cluster, stream_id: str, topic: str) -> str:
    """The name of what a stream writes to a topic that an option gives."""
    held = Ledger(cluster, stream_id).read()
    if held is not None and held.topics == (topic,):
        runs = {run_in(each.label) for each in held.participants}
        if runs and all(len(run) == RUN_CHARACTERS for run in runs):
            return stream_id
    return name_for_topic(stream_id, topic)


def run_of(name: str, write: str, query_run: str, *, topic: str | None) -> str:
    """The run of a write in foreachBatch; `query_run` is empty where it is not known."""
    if topic is not None and OWN_SPACE not in name:
        return write  # begun with an earlier version
    return (query_run or uuid.uuid5(uuid.NAMESPACE_OID, write).hex[:RUN_CHARACTERS]) + write
