"""Which ACLs Spark's source and exactly-once sink need: those of docs/acls.md, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.cli.properties import read_properties
from forebay.spark.pipelines import ONCE, Brokers, SqlSettings, sql
from forebay.wire.messages.list_groups import ListGroupsRequest
from support.brokers.secure_broker import SecureProcess, admin, secure_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(420)  # Spark shares its cores with whatever else runs

DOCS = Path(__file__).parents[3] / "docs" / "acls.md"
COMMAND = re.compile(r"^forebay acl add (User:spark .+?)(?:  +#.*)?$", re.MULTILINE)
RIGHTS = [line.split() for line in COMMAND.findall(DOCS.read_text())]
OPTIONAL = [right for right in RIGHTS if right[1] == "delete"]
OF_SINK = [right for right in RIGHTS if right not in OPTIONAL and "orders" not in right]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureProcess]:
    data = tmp_path_factory.mktemp("secure") / "data"
    with secure_broker(data) as broker:
        for topic in ("orders", "totals"):
            assert admin(data, "topic", "create", topic).code == 0
        assert admin(data, "user", "add", "spark", "--password-file", "-", stdin="a secret\n").code == 0
        assert admin(data, "produce", "orders", stdin='{"id": 1}\n{"id": 2}\n').code == 0
        # The topic of transactions is there from the first of them on.
        yield broker


def allow(broker: SecureProcess, *rights: list[str]) -> None:
    """These, and no others."""
    data = broker.data
    for right in RIGHTS:
        admin(data, "acl", "delete", *right)
    for right in rights:
        done = admin(data, "acl", "add", *right)
        assert done.code == 0, done.err


def brokers_of(broker: SecureProcess, user: str = "spark") -> Brokers:
    login = read_properties(broker.data / "security" / "client.properties")
    del login["bootstrap.servers"]
    if user != "admin":
        login |= {"sasl.username": user, "sasl.password": "a secret"}
    return Brokers(
        bootstrap=broker.bootstrap, options={f"kafka.{name}": value for name, value in login.items()}
    )


def write(spark: SparkSession, broker: SecureProcess, **options: str) -> None:
    rows = spark.range(2).selectExpr("CAST(id AS STRING) AS value")
    writing = {**brokers_of(broker).writing("totals"), "delivery": "exactly-once", **options}
    rows.write.format("forebay").options(**writing).mode("append").save()


def messages(broker: SecureProcess, topic: str, count: int) -> list[str]:
    done = admin(broker.data, "consume", topic, "-n", str(count))
    assert done.code == 0, done.err
    return done.out.splitlines()


def test_the_documented_rights_suffice(spark: SparkSession, secure: SecureProcess, tmp_path: Path) -> None:
    """For a job, and for a stream that reads a topic."""
    allow(secure, *(right for right in RIGHTS if right not in OPTIONAL))
    write(spark, secure, jobId="with-rights")
    settings = SqlSettings(
        schemas={"orders": "id INT"}, trigger=ONCE, checkpoint=str(tmp_path), start="earliest"
    )
    job = sql(spark, brokers_of(secure), "SELECT id FROM stream('orders')", "totals", settings)
    assert job.wait().facts["rows written"] == 2
    assert sorted(messages(secure, "totals", 4)) == ["0", "1", '{"id":1}', '{"id":2}']


def test_with_the_optional_one_a_write_without_a_job_leaves_no_group(
    spark: SparkSession, secure: SecureProcess
) -> None:
    cluster = brokers_of(secure, "admin").cluster()

    def groups() -> set[str]:
        return {found.group_id for found in cluster.any().ask(ListGroupsRequest()).groups}

    allow(secure, *RIGHTS)
    before = groups()
    write(spark, secure)
    assert groups() == before
    allow(secure, *(right for right in RIGHTS if right not in OPTIONAL))
    write(spark, secure)
    assert len(groups() - before) == 1


@pytest.mark.parametrize("missing", OF_SINK, ids=" ".join)
def test_each_of_the_rights_is_needed(spark: SparkSession, secure: SecureProcess, missing: list[str]) -> None:
    allow(secure, *(right for right in RIGHTS if right != missing))
    with pytest.raises(Exception, match=r"AUTHORIZATION_FAILED: .*docs/acls\.md"):
        write(spark, secure, jobId="-".join(missing).replace(":", "-"))
