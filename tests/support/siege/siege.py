"""One phase of a siege: good clients on a place that is attacked, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from support.siege.besiegers import besiegers
from support.siege.figures import BrokerWatch, Figures, Waits
from support.siege.good_clients import GoodClients
from support.siege.place import Place

P99_MS_MAX = 100.0
LONGEST_MS_MAX = 1000.0
RSS_MB_MAX = 300.0


def besiege(
    place: Place, name: str, phase: str, attacks: Sequence[str], seconds: float, share: float = 1.0
) -> Figures:
    """Good clients for this long beside the attacks, if there are any, and until all they sent has come
    through: what still waits at the end of the attack is waited for and counts. `share`: of the connections
    that each attack has."""
    with GoodClients(place.client_settings, place.target) as clients:
        watch = BrokerWatch(place)
        clients.forget()
        began, done = time.perf_counter(), {}
        if attacks:
            with besiegers(place.target, attacks, share) as attackers:
                time.sleep(seconds)
            done = dict(attackers.done)
        else:
            time.sleep(seconds)
        lasted = time.perf_counter() - began
        cpu_percent, cpu_missing_percent = watch.cpu_percent(lasted), watch.cpu_missing_percent(lasted)
        clients.finish()
        lost, stalls, longest = watch.counted()
        return Figures(
            place=name,
            phase=phase,
            seconds=lasted,
            produce=Waits.of(clients.produce_s),
            read=Waits.of(clients.readers[0].waits_s),
            read_view=Waits.of(clients.readers[1].waits_s),
            logins=Waits.of(clients.login_s),
            machine_late=Waits.of(clients.late_s),
            refused_logins=clients.refused_logins,
            errors=len(clients.errors) + sum(len(reader.errors) for reader in clients.readers),
            leases_lost=lost,
            stalls=stalls,
            stall_longest_ms=longest,
            rss_max_mb=watch.rss_max_mb(),
            cpu_percent=cpu_percent,
            cpu_missing_percent=cpu_missing_percent,
            done=done,
        )


def missed_bars(found: Figures) -> list[str]:
    """What was promised and did not hold."""
    bars = {
        f"{found.leases_lost} leases lost": found.leases_lost == 0,
        f"p99 {found.produce.p99_ms:.0f} ms": found.produce.p99_ms < P99_MS_MAX,
        f"longest wait {found.produce.longest_ms:.0f} ms": found.produce.longest_ms < LONGEST_MS_MAX,
        f"{found.rss_max_mb:.0f} MB in memory": found.rss_max_mb < RSS_MB_MAX,
    }
    return [text for text, held in bars.items() if not held]
