"""Topics that are created while a broker is being drained: nothing of them stays there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from forebay.cli.client import Client
from forebay.cli.cluster.commands import cluster
from forebay.operations.cluster import cluster_state
from forebay.operations.wire import WireConnection
from support.brokers.host_process import HostProcess, running_host
from support.clients.wire_client import WireClient, create


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostProcess]:
    with running_host(tmp_path / "data", 2) as running:
        yield running


def topics_on(host: HostProcess, broker: int) -> set[str]:
    with WireConnection.open(Client(bootstrap=host.bootstrap)) as connection:
        image = cluster_state.read_image(connection)
    return {name for name, state in cluster_state.states(image) if broker in state.replicas}


@pytest.mark.parametrize("command", [["workers", "1", "--yes"], ["drain", "2"]])
def test_a_topic_that_is_made_before_brokers_know_of_the_drain_is_moved_too(
    host: HostProcess, monkeypatch: pytest.MonkeyPatch, command: Sequence[str]
) -> None:
    mark = cluster_state.mark_drained

    def mark_late(connection: WireConnection, node: int, *, drained: bool) -> None:
        with WireClient(host.bootstrap) as client:
            create(client, "late", partitions=4)
        mark(connection, node, drained=drained)

    with monkeypatch.context() as patch:
        patch.setattr(cluster_state, "mark_drained", mark_late)
        done = CliRunner().invoke(cluster, [*command, "-b", host.bootstrap])
    assert done.exit_code == 0, done.output
    assert "2 partitions moved" in done.output
    assert topics_on(host, 2) == set()
