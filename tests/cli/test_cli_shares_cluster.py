"""`forebay share` where several brokers coordinate groups: each is asked for its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.testing import Cluster
from support.brokers.forebay_command import Done, forebay

GROUPS = [f"crew-{number}" for number in range(8)]
"""More than there are partitions of `__consumer_offsets`, so that each broker has some."""
MESSAGES = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        servers = running.bootstrap_servers
        assert forebay("topic", "create", "jobs", "--partitions", "4", bootstrap=servers).code == 0
        lines = "".join(f"{number}\n" for number in range(MESSAGES))
        assert forebay("produce", "jobs", bootstrap=servers, stdin=lines).code == 0
        yield running


def share(cluster: Cluster, *arguments: str) -> Done:
    """By way of one broker only."""
    done = forebay("share", *arguments, bootstrap=cluster.address(1))
    assert done.code == 0, done.err
    return done


def test_groups_of_every_broker_are_made_listed_and_deleted(cluster: Cluster) -> None:
    for name in GROUPS:
        share(cluster, "reset-offsets", name, "--to-earliest", "--topic", "jobs", "--execute")
    assert [each["group"] for each in share(cluster, "list", "--json").json()] == GROUPS
    assert {share(cluster, "describe", name, "--json").json()["lag"] for name in GROUPS} == {MESSAGES}

    consumed = forebay(
        "consume",
        "jobs",
        "--share",
        GROUPS[0],
        "--count",
        str(MESSAGES),
        "--timeout",
        "60",
        bootstrap=cluster.address(1),
    )
    assert sorted(map(int, consumed.out.split())) == list(range(MESSAGES))
    assert share(cluster, "describe", GROUPS[0], "--json").json()["lag"] == 0

    share(cluster, "delete", *GROUPS, "--yes")
    assert share(cluster, "list", "--json").json() == []
