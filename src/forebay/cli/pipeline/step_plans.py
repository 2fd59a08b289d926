"""The plans of the commands: which topics, places, schemas and rights each of them is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.cli.pipeline.plan import Right, StepPlan, rights_to_write, trigger_text
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.spark.pipelines import Brokers, CatalogSettings, SqlSettings


def archive_plan(
    topic: str,
    to: str,
    *,
    form: str,
    trigger: str,
    group: str | None,
    decode: str | None,
    dead_letters: str | None,
    catalog: CatalogSettings | None,
    checkpoint: str | None,
) -> StepPlan:
    from forebay.spark.pipelines.archiving.layout import CHECKPOINT
    from forebay.spark.pipelines.lake import Lake

    lake = Lake(to)
    of_group = () if group is None else (Right("read", "group", group),)
    letters = () if dead_letters is None else rights_to_write(dead_letters)
    table = {} if catalog is None else {"table": f"{'.'.join(catalog.identifier(topic))} in {catalog.name}"}
    return StepPlan(
        reads=[topic],
        writes=[] if dead_letters is None else [dead_letters],
        schemas={} if decode is None else {topic: f"values also decoded as {decode}"},
        places={
            "archive": f"{lake.location} ({form})",
            "checkpoint": checkpoint or lake.uri(CHECKPOINT),
            **table,
        },
        facts={"runs": trigger},
        rights=[Right("read", "topic", topic), *of_group, *letters],
    )


def compact_plan(archive: str, target_size: str) -> StepPlan:
    return StepPlan(places={"archive": archive}, facts={"files": f"up to {target_size}"})


def replay_plan(archive: str, to: str, *, pace: str, checkpoint: str | None) -> StepPlan:
    places = {"archive": archive, "checkpoint": checkpoint or "in the archive"}
    facts = {"pace": pace, "runs": trigger_text(True, None)}
    return StepPlan(writes=[to], places=places, facts=facts, rights=rights_to_write(to))


def sql_plan(brokers: Brokers, query: str, to: str, settings: SqlSettings, trigger: str) -> StepPlan:
    from forebay.spark.pipelines.queries.sql import checkpoint_of, described_formats
    from forebay.spark.pipelines.queries.sql_text import rewrite

    _, calls = rewrite(query)
    try:
        checkpoint = checkpoint_of(brokers, query, to, settings)
    except ForebayError:
        checkpoint = "named by the cluster, which does not answer"
    topics = list(dict.fromkeys(call.topic for call in calls))
    letters = [] if settings.dead_letters is None else [settings.dead_letters]
    reading = [Right("read", "topic", topic) for topic in topics]
    writing = [right for topic in (to, *letters) for right in rights_to_write(topic)]
    return StepPlan(
        reads=topics,
        writes=[to, *letters],
        schemas=described_formats(calls, settings, checkpoint),
        places={"checkpoint": checkpoint},
        facts={"query": query, "mode": settings.mode, "runs": trigger},
        rights=[*reading, *writing],
    )


def stats_plan(source: str, *, of_archive: bool, report: str | None) -> StepPlan:
    places = {"archive": source} if of_archive else {}
    if report is not None:
        places["report"] = report
    topics = [] if of_archive else [source]
    return StepPlan(reads=topics, places=places, rights=[Right("read", "topic", one) for one in topics])
