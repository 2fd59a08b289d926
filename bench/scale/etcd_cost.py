"""What a cluster does to its etcd meanwhile: writes, events to watchers, CPU, size."""

from __future__ import annotations

import re
import urllib.request
from typing import NamedTuple

from bench.scale.curve import Row
from forebay.local.etcd import EtcdCluster

_COUNTERS = {
    "puts": "etcd_mvcc_put_total",
    "events": "etcd_debugging_mvcc_events_total",
    "cpu_s": "process_cpu_seconds_total",
    "bytes": "etcd_mvcc_db_total_size_in_bytes",
    "slow_watchers": "etcd_debugging_mvcc_slow_watcher_total",
}


class EtcdCost(NamedTuple):
    """Counters since the start of etcd, and its size now."""

    puts: float
    events: float
    """Sent to watchers: one of each key for each broker."""
    cpu_s: float
    bytes: float
    slow_watchers: float
    """Watchers that are behind now."""

    @staticmethod
    def now(etcd: EtcdCluster) -> EtcdCost:
        with urllib.request.urlopen(f"http://{etcd.servers[0].endpoint}/metrics") as answer:
            text = answer.read().decode()
        found = {name: _value(text, metric) for name, metric in _COUNTERS.items()}
        return EtcdCost(**found)

    def since(self, before: EtcdCost) -> Row:
        return {
            "keys written": self.puts - before.puts,
            "events watched": self.events - before.events,
            "etcd: CPU s": self.cpu_s - before.cpu_s,
            "etcd: MB": self.bytes / 1e6,
        }


def _value(text: str, metric: str) -> float:
    found = re.search(rf"^{metric} (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])
