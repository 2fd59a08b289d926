"""A step of a pipeline, as a command or a file declares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.cli.pipeline.plan import StepPlan
from forebay.cli.pipeline.restarts import NO_RESTART, Restart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Job, Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    start: Callable[[SparkSession, Brokers], Job | Summary]
    check: Callable[[Brokers], None] = lambda _brokers: None
    """Raises an error for what is wrong before Spark is started."""
    reads: str | None = None
    """An archive that must be there, or that an earlier step makes."""
    makes: str | None = None
    """An archive."""
    is_short: Callable[[Brokers], bool] = lambda _brokers: False
    """True if the JVM has so little to do that its start is most of it; asked when all checks have passed."""
    plan: Callable[[Brokers], StepPlan] = lambda _brokers: StepPlan()
    """Tells what it will do, without doing it."""
    restart: Restart = NO_RESTART


@dataclass(slots=True)
class Collected:
    """Given as a click object, it takes the steps of commands instead of running them."""

    steps: list[Step] = field(default_factory=list)
