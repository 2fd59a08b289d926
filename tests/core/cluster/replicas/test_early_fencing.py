"""Who may count a broker as dead that refuses connections, and when nobody may."""

from __future__ import annotations

import pytest

from forebay.config import ControllerConfig
from forebay.core.cluster.image import NO_CONTROLLER, ClusterImage
from forebay.core.cluster.image_changes import (
    BrokerPut,
    ConfigOwner,
    ConfigPut,
    ControllerPut,
    PartitionPut,
    TopicPut,
)
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.early_fencing import is_led_by, last_led_by, led_by, obstacle, turn
from forebay.core.cluster.replicas.failover_times import Failover, decode_failovers, encode_failovers
from forebay.errors import ProtocolError
from support.machines.partition_states import NODES, TOPIC_ID, partition


def cluster(*states: PartitionState, controller: int = 1, alive: tuple[int, ...] = NODES) -> ClusterImage:
    brokers = [BrokerPut(registration=BrokerRegistration(id=node, host="h", port=9)) for node in alive]
    image = ClusterImage(cluster_id="c").apply([*brokers, ControllerPut(id=controller)])
    for state in states:
        record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=(state.replicas,))
        image = image.apply([TopicPut(record=record), PartitionPut(topic_id=TOPIC_ID, state=state)])
    return image


class TestTurn:
    def test_the_controller_judges_others_at_once(self) -> None:
        assert turn(cluster(controller=2), 2, 3, {3}) == 0

    def test_others_judge_nobody_but_the_controller(self) -> None:
        assert turn(cluster(controller=2), 1, 3, {3}) is None

    def test_others_judge_the_controller_one_after_the_other(self) -> None:
        image = cluster(controller=2, alive=(1, 2, 3, 4))
        assert [turn(image, me, 2, {2}) for me in (1, 3, 4)] == [0, 1, 2]

    def test_those_that_refuse_as_well_are_left_out_of_the_line(self) -> None:
        assert turn(cluster(controller=2), 3, 2, {1, 2}) == 0

    def test_nobody_judges_itself_nor_the_unknown(self) -> None:
        assert turn(cluster(controller=2), 2, 2, {2}) is None
        assert turn(cluster(controller=2), 2, 9, {9}) is None
        assert turn(cluster(controller=2, alive=(2, 3)), 1, 2, {2}) is None

    def test_without_a_controller_nobody_judges(self) -> None:
        assert turn(cluster(controller=NO_CONTROLLER), 1, 2, {2}) is None


class TestObstacle:
    def test_there_is_none_if_another_in_sync_replica_can_lead(self) -> None:
        assert obstacle(cluster(partition(1, (1, 3))), 1, ControllerConfig()) is None

    def test_a_broker_that_leads_nothing_may_go(self) -> None:
        assert obstacle(cluster(partition(2, (2,))), 1, ControllerConfig()) is None

    def test_a_partition_that_nobody_else_can_lead_keeps_its_leader(self) -> None:
        assert "t-0" in (obstacle(cluster(partition(1, (1,))), 1, ControllerConfig()) or "")
        away = cluster(partition(1, (1, 2)), alive=(1, 3))
        assert "t-0" in (obstacle(away, 1, ControllerConfig()) or "")

    def test_an_eligible_replica_can_lead(self) -> None:
        assert obstacle(cluster(partition(1, (1,), eligible=(2,))), 1, ControllerConfig()) is None

    @pytest.mark.parametrize("by_topic", [True, False])
    def test_where_an_unclean_election_is_allowed_the_lease_decides(self, by_topic: bool) -> None:
        """A verdict may be wrong, and must not elect who is not in sync."""
        image = cluster(partition(1, (1, 2, 3)))
        key = "unclean.leader.election.enable"
        if by_topic:
            image = image.apply([ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={key: "true"})])
        assert obstacle(image, 1, ControllerConfig(unclean_election=not by_topic)) is not None

    def test_what_has_no_leader_is_no_obstacle(self) -> None:
        assert obstacle(cluster(partition(NO_LEADER, (2,))), 1, ControllerConfig()) is None

    def test_who_is_about_to_lead_is_not_judged_where_nobody_else_could(self) -> None:
        """The leader has died, and others are still to be elected."""
        image = cluster(partition(1, (1, 2)), controller=3, alive=(2, 3))
        assert "t-0" in (obstacle(image, 2, ControllerConfig()) or "")
        assert (
            obstacle(cluster(partition(1, (1, 2, 3)), controller=3, alive=(2, 3)), 2, ControllerConfig())
            is None
        )


def test_how_many_partitions_are_led() -> None:
    image = cluster(partition(1, (1, 2)))
    assert [last_led_by(image, node) is not None for node in NODES] == [True, False, False]
    assert [len(led_by(image, node)) for node in NODES] == [1, 0, 0]
    (led,) = led_by(image, 1)
    assert [is_led_by(image, node, led) for node in NODES] == [True, False, False]
    assert not is_led_by(image, 1, ("gone", 0)), "a topic that was deleted meanwhile"


def test_failovers_are_kept_as_text() -> None:
    kept = [
        Failover(
            broker=number,
            by=2,
            at_ms=1_700_000_000_000,
            partitions=5,
            detect_ms=110,
            fence_ms=4,
            elect_ms=9,
            announce_ms=20,
        )
        for number in NODES
    ]
    assert decode_failovers(encode_failovers(kept)) == kept
    for text in (b"no json", b"[{}]", b"[1]", b"7"):
        with pytest.raises(ProtocolError):
            decode_failovers(text)
