"""Steps as `forebay pipeline run FILE --plan` shows them.

Brokers and schema registries are asked, and nothing is written anywhere; Spark is not started. What is wrong
is listed after the steps, so that one look shows all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.output import print_json
from forebay.cli.pipeline.plan import StepPlan
from forebay.cli.pipeline.step import Step
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.spark.pipelines import Brokers


def show_plan(steps: Sequence[Step], brokers: Brokers, problems: Iterable[str], as_json: bool) -> bool:
    """True if nothing is wrong. `problems`: what was found before."""
    wrong = list(problems)
    partitions = _Partitions(brokers if not wrong else None)
    told = [_told(step, brokers, partitions, wrong) for step in steps]
    rights = list(dict.fromkeys(right for one in told for right in one["rights"]))
    if as_json:
        print_json({"steps": told, "rights": rights, "problems": wrong})
    else:
        _print(told, rights, wrong)
    return not wrong


def _told(
    step: Step, brokers: Brokers, partitions: Callable[[str], int | None], problems: list[str]
) -> dict[str, Any]:
    try:
        plan = step.plan(brokers)
    except ForebayError as error:
        problem = f"{step.name}: {error}"
        if problem not in problems:
            problems.append(problem)
        plan = StepPlan()
    topics = {
        kind: [
            {"topic": topic, "partitions": partitions(topic), "schema": plan.schemas.get(topic)}
            for topic in names
        ]
        for kind, names in (("reads", plan.reads), ("writes", plan.writes))
    }
    return {
        "step": step.name,
        **topics,
        "places": dict(plan.places),
        **plan.facts,
        "restart": step.restart.text(),
        "rights": [str(right) for right in plan.rights],
    }


class _Partitions:
    """How many partitions topics have, as far as brokers can be asked."""

    def __init__(self, brokers: Brokers | None) -> None:
        self._brokers = brokers
        self._known: dict[str, int | None] = {}

    def __call__(self, topic: str) -> int | None:
        if topic not in self._known:
            self._known[topic] = self._ask(topic)
        return self._known[topic]

    def _ask(self, topic: str) -> int | None:
        try:
            return None if self._brokers is None else self._brokers.partitions(topic)
        except ForebayError:
            return None  # one of the problems


def _print(told: Sequence[dict[str, Any]], rights: Sequence[str], problems: Sequence[str]) -> None:
    for number, one in enumerate(told, 1):
        click.echo(f"{number}. {one['step']}")
        for name, text in _lines(one):
            click.echo(f"   {name:<11} {text}")
    _print_list("rights that its user needs, where there are ACLs (forebay acl add User:NAME ...)", rights)
    _print_list("problems", problems)


def _print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        click.echo(title)
        for line in lines:
            click.echo(f"   {line}")


def _lines(one: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for kind in ("reads", "writes"):
        for topic in one[kind]:
            yield kind, _topic_text(topic, "" if kind == "reads" else ", exactly once")
    yield from one["places"].items()
    for name, value in one.items():
        if name not in ("step", "reads", "writes", "places", "rights"):
            yield name, " ".join(str(value).split())


def _topic_text(topic: Mapping[str, Any], more: str) -> str:
    count = topic["partitions"]
    known = "" if count is None else f" ({count} partition{'' if count == 1 else 's'})"
    schema = "" if topic["schema"] is None else f", {topic['schema']}"
    return f"topic {topic['topic']}{known}{more}{schema}"
