"""What the workers of a host are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.config import broker_config
from forebay.errors import ConfigError
from forebay.local.workers.leftovers import check_none_left
from forebay.local.workers.plan import WorkerPlan, worker_plans


def plans(count: int, free: dict[str, list[int]] | None = None, **settings: str) -> list[WorkerPlan]:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    given |= {"ssl.keystore.location": "broker.pem", "forebay.workers": str(count)}
    return worker_plans(broker_config(given), free or {}, "host-a")


def test_the_first_worker_has_the_directory_itself_and_the_others_folders_in_it() -> None:
    made = plans(3, log_dirs="/data", node_id="5")
    assert [each.settings["log.dirs"] for each in made] == ["/data", "/data/workers/2", "/data/workers/3"]
    assert [each.settings["node.id"] for each in made] == ["5", "6", "7"]
    assert [each.settings["forebay.worker"] for each in made] == ["1", "2", "3"]


def test_each_worker_has_ports_of_its_own_beside_those_that_all_share() -> None:
    made = plans(
        2, listeners="PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9192", forebay_metrics_listener=":9404"
    )
    assert [each.ports for each in made] == [
        {"PLAINTEXT": 9093, "SSL": 9193},
        {"PLAINTEXT": 9094, "SSL": 9194},
    ]
    assert made[1].settings["listeners"] == "PLAINTEXT://127.0.0.1:9094,SSL://127.0.0.1:9194"
    assert made[1].settings["advertised.listeners"] == made[1].settings["listeners"]
    assert made[1].settings["forebay.metrics.listener"] == ":9406"


def test_advertised_ports_go_up_with_the_workers_too() -> None:
    made = plans(
        2,
        listeners="SSL://:9092",
        advertised_listeners="SSL://kafka.example.com:19092",
        forebay_workers_port_step="10",
    )
    told = [each.settings["advertised.listeners"] for each in made]
    assert told == ["SSL://kafka.example.com:19102", "SSL://kafka.example.com:19112"]


def test_clients_must_be_told_a_host_that_they_can_reach() -> None:
    with pytest.raises(ConfigError, match="add SSL://, with the host's name"):
        plans(2, listeners="SSL://:9092")


def test_ports_that_meet_are_refused_with_a_step_that_keeps_them_apart() -> None:
    both = "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093"
    with pytest.raises(ConfigError, match=r"forebay.workers.port.step=2"):
        plans(2, listeners=both)
    made = plans(2, listeners=both, forebay_workers_port_step="2")
    assert [each.ports for each in made] == [
        {"PLAINTEXT": 9094, "SSL": 9095},
        {"PLAINTEXT": 9096, "SSL": 9097},
    ]
    with pytest.raises(ConfigError, match="none above 65535"):
        plans(10, listeners="127.0.0.1:65530")


def test_free_ports_are_the_workers_own() -> None:
    made = plans(2, {"PLAINTEXT": [1111, 2222]}, listeners="127.0.0.1:0")
    assert [each.ports["PLAINTEXT"] for each in made] == [1111, 2222]


def test_replicas_stay_on_different_hosts_and_are_not_made_on_one_unless_asked_for() -> None:
    (alone, _) = plans(2)
    assert alone.settings["default.replication.factor"] == "1"
    assert alone.settings["forebay.lease.ttl.ms"] == "30000"
    assert "broker.rack" not in alone.settings
    (asked, _) = plans(2, default_replication_factor="2")
    assert asked.settings["default.replication.factor"] == "2"
    (clustered, _) = plans(2, forebay_cluster="etcd://10.0.0.1:2379/c")
    assert clustered.settings["broker.rack"] == "host-a"
    assert "default.replication.factor" not in clustered.settings
    assert "node.id" not in clustered.settings
    (named, _) = plans(2, forebay_cluster="etcd://10.0.0.1:2379/c", broker_rack="zone-1")
    assert named.settings["broker.rack"] == "zone-1"


@pytest.mark.parametrize("text", ["0", "-1", "many", "257", "1.5"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="auto for one per core"):
        broker_config({"forebay.workers": text})


def test_one_per_core() -> None:
    assert broker_config({"forebay.workers": "auto"}).workers.count >= 1


def test_partitions_of_workers_that_would_not_run_are_not_forgotten(tmp_path: Path) -> None:
    check_none_left(tmp_path, 1)
    (tmp_path / "workers" / "2").mkdir(parents=True)
    (tmp_path / "workers" / "3" / "orders-0").mkdir(parents=True)
    (tmp_path / "workers" / "2" / "old-1.abc-delete").mkdir()
    check_none_left(tmp_path, 3)
    with pytest.raises(ConfigError, match=r"1 partitions \(orders-0\): start with --workers 3"):
        check_none_left(tmp_path, 2)
    (tmp_path / "workers" / "3" / "orders-0" / ".stray").touch()
    check_none_left(tmp_path, 1)
