"""A short siege: all attacks at once, with fewer connections. `make siege` has the long one, and the bars.

How long good clients wait says nothing on a machine that runs other tests, so it is not asked here.
"""

from __future__ import annotations

from pathlib import Path

from support.siege.catalogue import ATTACKS
from support.siege.place import three_brokers
from support.siege.siege import besiege

SECONDS = 2.0
SHARE = 0.25
"""Of the connections of a long siege."""
RSS_MB_MAX = 400
"""More than the bar of a long siege, since attacks overlap by chance. It is the sum of the bounds: a broker
at rest, 50; what strangers and their handshakes take, 50; requests, the largest one and a quarter of
`queued.max.request.bytes`, 120; those that are handled in slices, and their answers, 80; one batch that is
unpacked, and what was found in it, 80. Without bounds it is a gigabyte."""


def test_good_clients_get_everything_through_and_no_lease_is_lost(tmp_path: Path) -> None:
    with three_brokers(tmp_path) as place:
        found = besiege(place, "cluster", "all", list(ATTACKS), SECONDS, share=SHARE)
        logs = "".join(log.read_text(errors="replace") for log in place.logs)
    assert found.leases_lost == 0
    assert found.rss_max_mb < RSS_MB_MAX
    assert "Traceback" not in logs, logs[-4000:]
