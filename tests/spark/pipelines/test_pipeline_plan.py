"""`forebay pipeline run FILE --plan`: what a file will do, without Spark and without doing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.cli.pipeline.engine import Engine
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import forebay
from support.spark.topics import make

STEPS = """
steps:
  - archive: {topic: plan-orders, to: lake, once: true, group: archivists}
  - compact: {archive: lake}
  - sql:
      query: |
        SELECT id FROM stream('plan-orders')
        WHERE id > 5
      to: plan-large
      schema: {plan-orders: "id INT"}
      dead-letters: plan-letters
      every: 10s
      checkpoint: checkpoint
    restart: on-failure
  - replay: {archive: lake, to: plan-large, speed: 2x}
  - stats: {source: plan-orders, report: report.html}
"""
SHOWN = """\
1. archive plan-orders
   reads       topic plan-orders (2 partitions)
   archive     PLACE/lake (parquet)
   checkpoint  PLACE/lake/_forebay/checkpoint
   runs        once: what is there, then it ends
   restart     never
2. compact lake
   archive     lake
   files       up to 256MB
   restart     never
3. sql to plan-large
   reads       topic plan-orders (2 partitions), json, schema: id INT
   writes      topic plan-large (1 partition), exactly once
   writes      topic plan-letters (1 partition), exactly once
   checkpoint  PLACE/checkpoint
   query       SELECT id FROM stream('plan-orders') WHERE id > 5
   mode        append
   runs        every 10s, until it is stopped
   restart     on-failure, 5 times in a row, after 10 s or more
4. replay lake
   writes      topic plan-large (1 partition), exactly once
   archive     lake
   checkpoint  in the archive
   pace        2x of the original
   runs        once: what is there, then it ends
   restart     never
5. stats of plan-orders
   reads       topic plan-orders (2 partitions)
   report      report.html
   restart     never
rights that its user needs, where there are ACLs (forebay acl add User:NAME ...)
   read topic plan-orders
   read group archivists
   write topic plan-large
   read topic plan-large
   read group spark-sink- --prefix
   write transactional-id spark- --prefix
   describe topic __transaction_state
   write topic plan-letters
   read topic plan-letters
"""


@pytest.fixture(scope="module")
def planned(broker: BrokerProcess) -> BrokerProcess:
    make(broker.bootstrap, plan_orders=2, plan_large=1, plan_letters=1)
    return broker


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Engine, "session", lambda *_: pytest.fail("Spark was started"))


def test_a_plan_shows_topics_schemas_places_and_rights(planned: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "steps.yml").write_text(STEPS)
    done = forebay("pipeline", "run", "steps.yml", "--plan", bootstrap=planned.bootstrap)
    assert (done.code, done.err) == (0, "")
    assert done.out == SHOWN.replace("PLACE", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["steps.yml"], "nothing was made"


def test_a_plan_lists_all_that_is_wrong(planned: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "steps.yml").write_text(
        """
        steps:
          - archive: {topic: nothing, to: lake, once: true}
          - sql: {query: "SELECT 1 FROM stream('plan-orders')", to: nowhere}
          - compact: {archive: other}
        """
    )
    done = forebay("pipeline", "run", "steps.yml", "--plan", "--json", bootstrap=planned.bootstrap)
    assert done.code == 1
    plan = json.loads(done.out)
    first, second, third = plan["problems"]
    assert first == "archive nothing: there is no topic nothing: `forebay topic create nothing` makes it"
    assert second.startswith("sql to nowhere: there is no topic nowhere")
    assert third.startswith(f"compact other: {tmp_path}/other is no archive")
    (read,) = plan["steps"][1]["reads"]
    assert read["schema"] == "json, schema: inferred from the first 1,000 messages"


def test_a_plan_needs_no_broker(tmp_path: Path) -> None:
    (tmp_path / "steps.yml").write_text(STEPS)
    done = forebay("pipeline", "run", "steps.yml", "--plan", bootstrap="127.0.0.1:1")
    assert done.code == 1
    assert "   reads       topic plan-orders\n" in done.out
    assert "problems\n   no broker answers at 127.0.0.1:1" in done.out
