"""The pytest plugin, as a project that has only installed forebay meets it."""

from __future__ import annotations

import pytest

from forebay.client import Admin, Producer, Record
from forebay.testing import Broker

pytest_plugins = ["pytester"]

PROJECT = """
    import pytest
    from forebay.client import Admin, Producer, Record

    names = set()

    @pytest.mark.parametrize("name", ["a/b", "ü"])
    def test_every_test_has_an_empty_topic_of_its_own(forebay_broker, forebay_topic, name):
        assert forebay_topic not in names
        names.add(forebay_topic)
        servers = forebay_broker.bootstrap_servers
        with Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
            assert producer.send_and_wait(Record(topic=forebay_topic, value=name)).offset == 0

    @pytest.mark.forebay_topic(partitions=3, config={"retention.ms": "1000"})
    def test_the_topic_can_be_shaped(forebay_broker, forebay_topic):
        admin = Admin(forebay_broker.bootstrap_servers)
        assert admin.topics()[forebay_topic] == 3
        assert admin.topic_config(forebay_topic)["retention.ms"] == "1000"

    def test_topics_go_with_their_tests(forebay_broker):
        assert not names & set(Admin(forebay_broker.bootstrap_servers).topics())

    def test_the_brokers_settings_can_be_overridden(forebay_broker):
        admin = Admin(forebay_broker.bootstrap_servers)
        admin.create_topic("defaults")
        assert admin.topics()["defaults"] == 5
"""

CONFTEST = """
    import pytest

    @pytest.fixture(scope="session")
    def forebay_settings():
        return {"num.partitions": 5}
"""


def test_a_project_that_uses_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(PROJECT)
    result = pytester.runpytest_subprocess(
        "--strict-markers", "-W", "error", "-p", "no:asyncio", "-p", "no:cacheprovider"
    )
    result.assert_outcomes(passed=5)


def test_a_project_that_does_not_use_them_pays_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing_heavy_is_imported():
            assert "forebay.testing.plugin" in sys.modules
            assert not {"forebay.broker", "forebay.client", "confluent_kafka"} & set(sys.modules)
    """)
    pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_fixtures_work_here_too(forebay_broker: Broker, forebay_topic: str) -> None:
    assert Admin(forebay_broker.bootstrap_servers).topics()[forebay_topic] == 1
    with Producer(
        forebay_broker.bootstrap_servers, delivery="at-most-once", acks=1, profile="latency"
    ) as producer:
        assert producer.send_and_wait(Record(topic=forebay_topic, value="x")).offset == 0
