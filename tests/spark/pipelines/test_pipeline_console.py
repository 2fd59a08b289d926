"""A running pipeline in the console: its steps, the stream that reads, the query that writes exactly once."""

from __future__ import annotations

import os
import signal
import socket
from functools import partial
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.console.browser import needs_browser, opened_page, picture, running_browser, show
from support.console.running_console import running_console
from support.spark.pipeline_process import running
from support.spark.topics import Sent, make, send

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), needs_browser]

STEPS = """
conf: {spark.sql.shuffle.partitions: 2}
steps:
  - archive: {topic: shown-orders, to: lake, every: 1s, group: shown-archive}
  - sql:
      query: SELECT id FROM stream('shown-orders', schema => 'id INT') WHERE id > 2
      to: shown-large
      every: 1s
      checkpoint: checkpoint
"""


def test_a_person_sees_a_pipeline_work_and_end(
    broker: BrokerProcess, tmp_path: Path, jvm_options: str
) -> None:
    make(broker.bootstrap, shown_orders=1, shown_large=1)
    (tmp_path / "steps.yml").write_text(STEPS)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    started = partial(running, bootstrap=broker.bootstrap, cwd=tmp_path, jvm_options=jvm_options)
    with (
        running_console(broker.bootstrap, pipelines=(f"127.0.0.1:{port}",)) as console,
        running_browser() as browser,
        opened_page(browser, console.url) as page,
        started("run", "steps.yml", "--metrics", str(port)) as process,
    ):
        page.set_default_timeout(600_000)  # until Spark has started
        show(page, "pipelines")
        steps = page.get_by_role("region", name="Steps of running pipelines")
        steps.get_by_text("works").nth(1).wait_for()
        send(broker.bootstrap, "shown-orders", [Sent(b'{"id": %d}' % n) for n in range(5)])
        steps.get_by_role("row", name="archive shown-orders works 5").wait_for()
        steps.get_by_role("row", name="sql to shown-large works 5 2").wait_for()

        send(broker.bootstrap, "shown-orders", [Sent(b'{"id": %d}' % n) for n in range(5, 8)])
        steps.get_by_role("row", name="archive shown-orders works 8").wait_for()
        stream = page.get_by_role("region", name="Streams that read").get_by_role("row").nth(1)
        stream.get_by_text("ago").or_(stream.get_by_text("just now")).wait_for()
        writers = page.get_by_role("region", name="Streams and jobs that write exactly once")
        writers.get_by_role("link", name="shown-large").wait_for()
        picture(page, "pipelines")

        os.killpg(process.pid, signal.SIGTERM)
        page.get_by_text("it is there while its pipeline runs").wait_for()
        assert stream.get_by_role("link", name="shown-archive").is_visible(), "its offsets are kept"
        stream.get_by_role("link", name="shown-archive").click()
        page.get_by_text("a stream commits to it").wait_for()
        assert console.get("local/groups/shown-archive")["lag"] == 0
