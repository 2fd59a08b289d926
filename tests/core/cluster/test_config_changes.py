"""Settings of topics, brokers and groups: what an administrator's request changes, or why it is refused."""

from __future__ import annotations

import pytest

from forebay.config import BrokerConfig, TopicConfig, broker_config
from forebay.core.cluster.config_changes import Alteration, AlterOp, Resource, alter_configs, replace_configs
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, ConfigOwner, ConfigPut
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.resources import UNKNOWN_SETTINGS_MAX, ResourceType
from forebay.core.cluster.topics.topic_requests import NewTopic, create_topic
from forebay.errors import ErrorCode, KafkaError

CONFIG = broker_config()


def cluster(brokers: int = 3) -> ClusterImage:
    registrations = [BrokerRegistration(id=number, host="h", port=9) for number in range(1, brokers + 1)]
    return ClusterImage(cluster_id="c").apply([BrokerPut(registration=broker) for broker in registrations])


def with_topic(image: ClusterImage, configs: dict[str, str | None] | None = None) -> ClusterImage:
    topic = NewTopic(name="t", topic_id=b"0123456789abcdef", configs=configs or {})
    return image.apply(create_topic(image, CONFIG, topic))


TOPIC = Resource(type=ResourceType.TOPIC, name="t")
BROKER = Resource(type=ResourceType.BROKER, name="1")
EVERY_BROKER = Resource(type=ResourceType.BROKER, name="")
GROUP = Resource(type=ResourceType.GROUP, name="g")


def alteration(name: str, op: int, value: str | None = None) -> Alteration:
    return Alteration(name=name, op=op, value=value)


def test_replacing_drops_what_is_not_named() -> None:
    image = with_topic(cluster(), configs={"retention.ms": "5", "segment.bytes": "1000"})
    changes = replace_configs(image, CONFIG, TOPIC, [("segment.bytes", "2000")])
    assert changes == [ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"segment.bytes": "2000"})]
    assert replace_configs(image, CONFIG, TOPIC, []) == [
        ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={})
    ]


def test_altering_keeps_the_rest() -> None:
    image = with_topic(cluster(), configs={"retention.ms": "5", "segment.bytes": "1000"})
    changes = alter_configs(
        image,
        CONFIG,
        TOPIC,
        [alteration("segment.bytes", AlterOp.DELETE), alteration("segment.ms", AlterOp.SET, "9")],
    )
    assert changes == [
        ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"retention.ms": "5", "segment.ms": "9"})
    ]


def test_nothing_to_change_is_nothing_to_write() -> None:
    image = with_topic(cluster(), configs={"retention.ms": "5"})
    assert alter_configs(image, CONFIG, TOPIC, [alteration("retention.ms", AlterOp.SET, "5")]) == []
    assert alter_configs(image, CONFIG, TOPIC, [alteration("segment.bytes", AlterOp.DELETE)]) == []


@pytest.mark.parametrize(
    ("before", "op", "value", "after"),
    [
        (None, AlterOp.APPEND, "compact", "delete,compact"),
        ("compact", AlterOp.APPEND, "compact,delete", "compact,delete"),
        ("compact,delete", AlterOp.SUBTRACT, "delete", "compact"),
    ],
)
def test_lists_are_edited_from_what_is_in_force(before: str | None, op: int, value: str, after: str) -> None:
    image = with_topic(cluster(), configs={"cleanup.policy": before} if before else {})
    changes = alter_configs(image, CONFIG, TOPIC, [alteration("cleanup.policy", op, value)])
    assert changes == [ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"cleanup.policy": after})]


@pytest.mark.parametrize(
    ("resource", "changes", "code"),
    [
        (Resource(type=2, name="u"), [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Resource(type=4, name="9"), [], ErrorCode.INVALID_REQUEST),
        (Resource(type=4, name="x"), [], ErrorCode.INVALID_REQUEST),
        (Resource(type=4, name="9" * 5_000), [], ErrorCode.INVALID_REQUEST),
        (Resource(type=2, name="a/b"), [], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (Resource(type=32, name=""), [], ErrorCode.INVALID_REQUEST),
        (TOPIC, [alteration("bananas", AlterOp.SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [alteration("bananas", AlterOp.APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [alteration("remote.storage.enable", AlterOp.SET, "true")], ErrorCode.INVALID_CONFIG),
        (BROKER, [alteration("authorizer.class.name", AlterOp.SET, "a.B")], ErrorCode.INVALID_REQUEST),
        (GROUP, [alteration("session.timeout.ms", AlterOp.SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [alteration("retention.ms", AlterOp.SET, "-5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [alteration("retention.ms", AlterOp.SET)], ErrorCode.INVALID_REQUEST),
        (TOPIC, [alteration("retention.ms", AlterOp.APPEND, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [alteration("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        (TOPIC, [alteration("segment.ms", AlterOp.SET, "5")] * 2, ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("log.dirs", AlterOp.SET, "/x")], ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("log.retention.ms", AlterOp.SET, "x")], ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("retention.ms", AlterOp.SET, "5")], ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("process.roles", AlterOp.SET, "broker")], ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("ssl.cipher.suites", AlterOp.SET, "x")], ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("forebay.flush.polici", AlterOp.SET, "ack")], ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("a b", AlterOp.SET, "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, [alteration("a" * 201, AlterOp.SET, "1")], ErrorCode.INVALID_REQUEST),
        (
            BROKER,
            [alteration(f"plugin.{n}", AlterOp.SET, "1") for n in range(UNKNOWN_SETTINGS_MAX + 1)],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_what_cannot_be_altered(resource: Resource, changes: list[Alteration], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        alter_configs(with_topic(cluster()), CONFIG, resource, changes)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "x")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_replace(configs: list[tuple[str, str | None]], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        replace_configs(with_topic(cluster()), CONFIG, TOPIC, configs)
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["my.plugin.level", "sasl.kerberos.service.name", "config.providers"])
def test_a_broker_keeps_settings_that_mean_nothing_to_it(name: str) -> None:
    (change,) = alter_configs(cluster(), CONFIG, BROKER, [alteration(name, AlterOp.SET, "x")])
    assert change == ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={name: "x"})
    kept = cluster().apply([change])
    in_force = CONFIG.with_dynamic(own=kept.broker_config("1").overrides, default={})
    assert {**in_force.values, name: None} == {**CONFIG.values, name: None}
    (change,) = alter_configs(kept, CONFIG, BROKER, [alteration(name, AlterOp.DELETE)])
    assert change == ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={})


def test_a_topic_may_have_no_cleanup_policy() -> None:
    image = with_topic(cluster())
    (change,) = alter_configs(
        image, CONFIG, TOPIC, [alteration("cleanup.policy", AlterOp.SUBTRACT, "delete")]
    )
    assert change == ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"cleanup.policy": ""})
    settings = TopicConfig.resolve(CONFIG, {"cleanup.policy": ""})
    assert not settings.compacted and not settings.deletes


def test_brokers_have_settings_of_their_own_and_in_common() -> None:
    change = [alteration("log.retention.ms", AlterOp.SET, "5")]
    overrides = {"log.retention.ms": "5"}
    assert alter_configs(cluster(), CONFIG, BROKER, change) == [
        ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides=overrides)
    ]
    assert alter_configs(cluster(), CONFIG, EVERY_BROKER, change) == [
        ConfigPut(owner=ConfigOwner.BROKER, name=ALL_BROKERS, overrides=overrides)
    ]


@pytest.mark.parametrize(
    ("resource", "change", "text"),
    [
        (TOPIC, alteration("bananas", AlterOp.SET, "1"), "Unknown topic config name: bananas"),
        (
            BROKER,
            alteration("forebay.bananas", AlterOp.SET, "1"),
            "Unknown broker config name: forebay.bananas",
        ),
        (
            BROKER,
            alteration("process.roles", AlterOp.SET, "broker"),
            "Cannot update these configs dynamically: process.roles",
        ),
        (GROUP, alteration("bananas", AlterOp.SET, "1"), "Unknown group config name: bananas"),
        (
            TOPIC,
            alteration("retention.ms", AlterOp.SET, "x"),
            "Invalid value x for configuration retention.ms",
        ),
        (
            BROKER,
            alteration("log.dirs", AlterOp.SET, "/x"),
            "Cannot update these configs dynamically: log.dirs",
        ),
    ],
)
def test_refusals_begin_with_the_words_that_users_of_kafka_look_for(
    resource: Resource, change: Alteration, text: str
) -> None:
    with pytest.raises(KafkaError) as caught:
        alter_configs(with_topic(cluster()), CONFIG, resource, [change])
    assert caught.value.message.startswith(text)


@pytest.mark.parametrize(
    ("number", "name"), [(8, "BROKER_LOGGER"), (16, "CLIENT_METRICS"), (99, "resource type 99")]
)
def test_resources_without_stored_settings_are_named(number: int, name: str) -> None:
    with pytest.raises(KafkaError, match=f"^{name} has no settings.*TOPIC, BROKER, GROUP") as caught:
        alter_configs(cluster(), CONFIG, Resource(type=number, name="1"), [])
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("resource", [TOPIC, BROKER, EVERY_BROKER, GROUP])
def test_deleting_what_is_not_known_is_no_error(resource: Resource) -> None:
    """kafka-reassign-partitions deletes three settings of each broker at once, whether they were set."""
    image = with_topic(cluster())
    unknown = [alteration("replica.alter.log.dirs.speed", AlterOp.DELETE), alteration("x", AlterOp.DELETE)]
    assert alter_configs(image, CONFIG, resource, unknown) == []


def test_a_throttle_goes_though_an_unknown_setting_is_deleted_with_it() -> None:
    image = cluster().apply(
        [ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={"leader.replication.throttled.rate": "5"})]
    )
    gone = [alteration("leader.replication.throttled.rate", AlterOp.DELETE), alteration("x", AlterOp.DELETE)]
    assert alter_configs(image, CONFIG, BROKER, gone) == [
        ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={})
    ]


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        (BROKER, "replica.alter.log.dirs.io.max.bytes.per.second", "1000"),
        (EVERY_BROKER, "num.io.threads", "16"),
        (TOPIC, "flush.ms", "0"),
        (TOPIC, "flush.messages", "1"),
        (GROUP, "streams.num.standby.replicas", "1"),
    ],
)
def test_what_has_no_meaning_here_is_kept(resource: Resource, name: str, value: str) -> None:
    (change,) = alter_configs(with_topic(cluster()), CONFIG, resource, [alteration(name, AlterOp.SET, value)])
    assert isinstance(change, ConfigPut)
    assert change.overrides == {name: value}


@pytest.mark.parametrize("name", ["1", "01", "0000000001"])
def test_a_broker_is_meant_however_its_number_is_written(name: str) -> None:
    change = [alteration("log.retention.ms", AlterOp.SET, "5")]
    (put,) = alter_configs(cluster(), CONFIG, Resource(type=ResourceType.BROKER, name=name), change)
    assert put == ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={"log.retention.ms": "5"})


# -- lists ------------------------------------------------------------------------------------------------

DRAINED = "forebay.drained.brokers"


def edited(
    image: ClusterImage, config: BrokerConfig, resource: Resource, name: str, op: AlterOp, value: str
) -> str:
    (change,) = alter_configs(image, config, resource, [alteration(name, op, value)])
    assert isinstance(change, ConfigPut)
    return change.overrides[name]


def test_an_explicitly_empty_list_is_empty() -> None:
    name = "leader.replication.throttled.replicas"
    image = with_topic(cluster(), {name: ""})
    assert edited(image, CONFIG, TOPIC, name, AlterOp.APPEND, "0:1") == "0:1"
    common = ConfigPut(owner=ConfigOwner.BROKER, name=ALL_BROKERS, overrides={DRAINED: "2,3"})
    image = cluster().apply([common, ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={DRAINED: ""})])
    assert edited(image, CONFIG, BROKER, DRAINED, AlterOp.APPEND, "4") == "4"
    assert alter_configs(image, CONFIG, BROKER, [alteration(DRAINED, AlterOp.SUBTRACT, "2")]) == []


@pytest.mark.parametrize("op", [AlterOp.APPEND, AlterOp.SUBTRACT])
def test_it_does_not_matter_which_broker_edits_a_list(op: AlterOp) -> None:
    """What a broker has in its own config file does not count, only what all brokers know."""
    one = broker_config({"log.cleanup.policy": "compact"})
    other = broker_config({"log.cleanup.policy": "delete"})
    common = ConfigPut(
        owner=ConfigOwner.BROKER, name=ALL_BROKERS, overrides={"log.cleanup.policy": "delete,compact"}
    )
    for image in (with_topic(cluster()), with_topic(cluster()).apply([common])):
        change = [alteration("cleanup.policy", op, "compact")]
        made = {str(alter_configs(image, config, TOPIC, change)) for config in (one, other, CONFIG)}
        assert len(made) == 1


def test_a_list_that_is_not_given_is_that_of_all_brokers() -> None:
    common = ConfigPut(
        owner=ConfigOwner.BROKER, name=ALL_BROKERS, overrides={"log.cleanup.policy": "compact"}
    )
    image = with_topic(cluster()).apply([common])
    assert edited(image, CONFIG, TOPIC, "cleanup.policy", AlterOp.APPEND, "delete") == "compact,delete"
    assert edited(image, CONFIG, BROKER, "log.cleanup.policy", AlterOp.APPEND, "delete") == "compact,delete"


# -- groups -----------------------------------------------------------------------------------------------


def test_a_group_has_settings_before_it_exists() -> None:
    change = [alteration("consumer.session.timeout.ms", AlterOp.SET, "50000")]
    (put,) = alter_configs(cluster(), CONFIG, GROUP, change)
    assert put == ConfigPut(
        owner=ConfigOwner.GROUP, name="g", overrides={"consumer.session.timeout.ms": "50000"}
    )
    image = cluster().apply([put])
    assert replace_configs(image, CONFIG, GROUP, []) == [
        ConfigPut(owner=ConfigOwner.GROUP, name="g", overrides={})
    ]


@pytest.mark.parametrize(
    ("session", "heartbeat", "problem"),
    [
        ("999", None, r"greater than or equal to group\.consumer\.min\.session\.timeout\.ms"),
        ("60001", None, r"less than or equal to group\.consumer\.max\.session\.timeout\.ms"),
        (None, "99", r"greater than or equal to group\.consumer\.min\.heartbeat\.interval\.ms"),
        (None, "15001", r"less than or equal to group\.consumer\.max\.heartbeat\.interval\.ms"),
        ("2000", None, r"must be greater than consumer\.heartbeat\.interval\.ms \(5000\)"),
        ("2000", "2000", r"must be greater than consumer\.heartbeat\.interval\.ms \(2000\)"),
        ("0", None, "out of range"),
    ],
)
def test_the_broker_bounds_what_a_group_may_have(
    session: str | None, heartbeat: str | None, problem: str
) -> None:
    given = {"consumer.session.timeout.ms": session, "consumer.heartbeat.interval.ms": heartbeat}
    changes = [alteration(name, AlterOp.SET, value) for name, value in given.items() if value]
    with pytest.raises(KafkaError, match=problem) as caught:
        alter_configs(cluster(), CONFIG, GROUP, changes)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
