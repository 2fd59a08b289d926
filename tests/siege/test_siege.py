"""Strangers, users without rights, heavy queries and slow readers, one attack at a time and all at once.

`make siege` runs it: each attack for SIEGE_SECONDS on one secure broker and on a secure cluster of three,
beside good clients. It prints a table, and writes the figures to SIEGE_JSON if that names a file.
`make siege ARGS="-k headers"` runs one attack. "peace" is without any, and "floor" only uses the attackers'
core: what good clients wait for there, no broker can mend. The bars are for two cores, of which the attackers
take one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from rich.console import Console

from support.siege.busy_core import FLOOR
from support.siege.catalogue import ATTACKS
from support.siege.figures import Figures, show, write_json
from support.siege.place import Place, one_broker, three_brokers
from support.siege.siege import besiege, missed_bars

pytestmark = [pytest.mark.siege, pytest.mark.timeout(0)]

SIEGE_SECONDS = float(os.environ.get("SIEGE_SECONDS", "10"))
SIEGE_JSON = os.environ.get("SIEGE_JSON")
PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "broker": one_broker,
    "cluster": three_brokers,
}
PHASES: dict[str, list[str]] = {
    "peace": [],
    "floor": list(FLOOR),
    **{name: [name] for name in ATTACKS},
    "all": list(ATTACKS),
}


@pytest.fixture(scope="module")
def report(pytestconfig: pytest.Config) -> Iterator[list[Figures]]:
    """What was found by now; shown when all phases are over."""
    found: list[Figures] = []
    yield found
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        show(found, Console(width=170))
    if SIEGE_JSON:
        write_json(found, Path(SIEGE_JSON))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("place", PLACES)
def test_good_clients_are_served_during_a_siege(
    place: str, phase: str, tmp_path: Path, report: list[Figures]
) -> None:
    with PLACES[place](tmp_path) as besieged:
        found = besiege(besieged, place, phase, PHASES[phase], SIEGE_SECONDS)
    report.append(found)
    missed = missed_bars(found)
    assert not missed, f"{', '.join(missed)}; {found}"
