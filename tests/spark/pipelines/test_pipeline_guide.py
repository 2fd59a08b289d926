"""docs/spark.md: the blocks are run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.brokers.broker_process import BrokerProcess
from support.spark.topics import contents, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

GUIDE = Path(__file__).parents[3] / "docs" / "spark.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_guide_does_what_it_says(
    spark: SparkSession, fresh_broker: BrokerProcess, tmp_path: Path
) -> None:
    """In the session of the tests; `session` finds it. Addresses and paths are those of this test."""
    bootstrap = fresh_broker.bootstrap
    make(bootstrap, orders=2, orders_again=2, large_orders=1, small_orders=1, spent_by_user=1, prices=2)
    names: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS, 1):
        ours = block.replace("127.0.0.1:9092", bootstrap).replace("/tmp/guide", str(tmp_path))
        exec(compile(ours, f"{GUIDE.name}, Python block {number}", "exec"), names)
    assert names["spark"] is spark
    assert [one.value for one in contents(bootstrap, "large-orders")] == [
        b'{"user":"ann","country":"de","amount":120}'
    ]
    spark.streams.removeListener(names["listener"])
    names["listener"].close()
    spent = [(one.key, one.value) for one in contents(bootstrap, "spent-by-user")]
    assert sorted(spent) == [
        (b"ann", b'{"user":"ann","sum(amount)":165}'),
        (b"bob", b'{"user":"bob","sum(amount)":80}'),
    ]
    small = sorted(one.value or b"" for one in contents(bootstrap, "small-orders"))
    assert small == [b'{"country":"de","amount":45}', b'{"country":"fr","amount":80}']
