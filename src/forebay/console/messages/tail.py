"""The live tail: new messages of a topic as events, from a thread that fetches with a long poll.

What comes faster than a person can read is thinned out: of each fetch only the last messages are shown, and
the rest is counted. So the work per second has a bound, and a tail never falls behind. The id of an event
says how far each partition was read, and a browser that connects again goes on there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from forebay.console.messages.fetching import FETCH_BYTES, LATEST, TopicReader, batches_of
from forebay.console.messages.filters import Filter, make_filter
from forebay.console.messages.searching import parse_cursor
from forebay.console.messages.showing import mask_of, show_for
from forebay.console.watch.cluster_access import ClusterAccess
from forebay.console.web.live import EventQueue
from forebay.errors import ForebayError
from forebay.operations.client import CommandError
from forebay.operations.wire import BrokerConnections

SHOWN_PER_EVENT_MAX = 100
_WAIT_MS = 400
_PAUSE_SECONDS = 0.15
"""Between two events: more often nobody can see."""
_ANSWER_SECONDS = 20.0
_AGAIN_SECONDS = 1.0


def tail(
    cluster: ClusterAccess, query: Mapping[str, str], last_id: str, queue: EventQueue
) -> Callable[[], None]:
    """The live source `tail`. The query: `tail_topic`, and the filters of a search."""
    topic = query.get("tail_topic", "")
    if topic not in cluster.snapshot().topics:
        raise CommandError(f"there is no topic {topic}")
    wanted = make_filter(
        text=query.get("text", ""),
        key=query.get("key", ""),
        header=query.get("header", ""),
        where=query.get("where", ""),
        mask=mask_of(cluster, topic, cluster.user),
    )
    if not cluster.tails.acquire(blocking=False):
        raise CommandError("too many live views are open: close some")
    only = {int(text) for text in query.get("partition", "").split(",") if text.isdigit()}
    running = _Tail(cluster, topic, only, wanted, parse_cursor(last_id) or {}, queue)
    threading.Thread(target=running.run, name=f"console-tail-{topic}", daemon=True).start()
    return running.stop


class _Tail:
    def __init__(
        self,
        cluster: ClusterAccess,
        topic: str,
        only: set[int],
        wanted: Filter,
        places: Mapping[int, int],
        queue: EventQueue,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._only = only
        self._wanted = wanted
        self._places = dict(places)
        self._queue = queue
        self._show = show_for(cluster.settings)
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        connections = BrokerConnections(self._cluster.client, answer_s=_ANSWER_SECONDS)
        try:
            while not self._stopped.is_set():
                try:
                    self._follow(connections)
                except ForebayError as error:
                    connections.close()
                    self._queue.put_json("trouble", {"error": str(error)})
                    self._stopped.wait(_AGAIN_SECONDS)
        finally:
            connections.close()
            self._cluster.tails.release()

    def _follow(self, connections: BrokerConnections) -> None:
        """Until something changes: another leader, more partitions, an error."""
        picture = self._cluster.snapshot()
        if self._topic not in picture.topics:
            raise CommandError(f"topic {self._topic} is gone")
        reader = TopicReader(connections, picture, self._topic)
        partitions = [each for each in reader.partitions if not self._only or each in self._only]
        new = [each for each in partitions if each not in self._places]
        self._places |= reader.ends(new, LATEST)
        leaders = reader.by_leader(partitions)
        self._queue.put_json("tailing", {"partitions": len(partitions)})
        while not self._stopped.is_set():
            began = time.monotonic()
            rows, skipped = self._poll(reader, leaders)
            if rows or skipped:
                places = ",".join(f"{index}:{offset}" for index, offset in sorted(self._places.items()))
                self._queue.put_json(
                    "messages", {"rows": rows, "skipped": skipped}, id=places, weight=len(rows) + skipped
                )
            self._stopped.wait(max(0.0, _PAUSE_SECONDS - (time.monotonic() - began)))
            now = self._cluster.snapshot().topics.get(self._topic)
            if now is not picture.topics[self._topic] and _changed(now, picture.topics[self._topic]):
                return

    def _poll(
        self, reader: TopicReader, leaders: Mapping[str, list[int]]
    ) -> tuple[list[dict[str, Any]], int]:
        """The last new messages, and how many others there were."""
        rows: list[dict[str, Any]] = []
        matched = 0
        now_ms = time.time_ns() // 1_000_000
        for address, partitions in leaders.items():
            offsets = {each: self._places[each] for each in partitions if each in self._places}
            for fetched in reader.fetch(
                address, offsets, wait_ms=_WAIT_MS // len(leaders), bytes_max=FETCH_BYTES
            ):
                at = self._places[fetched.partition]
                if at < fetched.start:  # deleted meanwhile
                    self._places[fetched.partition] = fetched.start
                batches = batches_of(fetched, at)
                for batch in batches.visible:
                    for record in self._wanted.matching(batch, self._topic, fetched.partition, now_ms):
                        if record.offset >= at:
                            matched += 1
                            rows.append(self._show(fetched.partition, record))
                    del rows[: max(0, len(rows) - 4 * SHOWN_PER_EVENT_MAX)]
                self._places[fetched.partition] = max(batches.next_offset, self._places[fetched.partition])
        rows.sort(key=lambda row: (row["timestamp"], row["partition"], row["offset"]))
        rows = rows[-SHOWN_PER_EVENT_MAX:]
        return rows, matched - len(rows)


def _changed(now: Any, before: Any) -> bool:
    """True if the topic has other leaders or partitions than before."""
    if now is None or now.id != before.id:
        return True
    return [part.leader for part in now.partitions] != [part.leader for part in before.partitions]
