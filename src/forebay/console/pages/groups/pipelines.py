"""Pipelines: streams and jobs of Spark by what they have committed, and steps of `forebay pipeline run`."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from forebay.console.pages.groups.group_list import ages_of, most_lagging
from forebay.console.watch.snapshot import GroupSeen, LedgerSeen
from forebay.console.web.asking import Ask
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of

PAGE = Page()

_ANSWER_SECONDS = 5.0
_PAGE_BYTES_MAX = 1 << 20
_SAMPLE = re.compile(r'forebay_pipeline_(?P<name>\w+)\{step="(?P<step>(?:[^"\\]|\\.)*)"\} (?P<value>\S+)')
_SIZE = 100


@PAGE.get("/pipelines")
def pipelines(ask: Ask) -> dict[str, Any]:
    """Streams that read, and streams and jobs that write exactly once."""
    picture = ask.cluster.snapshot()
    readers = [group for group in picture.groups.values() if group.is_spark]
    shown = page_of(
        ask,
        readers,
        name=lambda group: group.name,
        columns={"name": lambda group: group.name, "lag": lambda group: group.lag},
        default="name",
        show=_reader,
        size=_SIZE,
    )
    waiting = {row["name"]: most_lagging(picture, picture.groups[row["name"]]) for row in shown["rows"]}
    seconds = ages_of(ask, waiting)
    for row in shown["rows"]:
        row["seconds"] = seconds.get(row["name"])
    words = ask.text("search").lower().split()
    writers = [each for each in picture.ledgers.values() if all(word in each.name.lower() for word in words)]
    return {
        "now": picture.time_s,
        "readers": shown,
        "writers": [_writer(each) for each in writers[:_SIZE]],
        "writers_all": len(writers),
        "steps": [step for url in ask.cluster.settings.pipelines for step in read_steps(url)],
        "steps_asked": len(ask.cluster.settings.pipelines),
    }


def _reader(group: GroupSeen) -> dict[str, Any]:
    return {
        "name": group.name,
        "topics": sorted(group.topics),
        "lag": group.lag,
        "rate": group.read_rate,
        "moved": group.moved_s,
    }


def _writer(ledger: LedgerSeen) -> dict[str, Any]:
    return {
        "name": ledger.name,
        "topics": ledger.topics,
        "batch": ledger.batch,
        "batches_a_minute": None if ledger.batches_rate is None else ledger.batches_rate * 60,
        "moved": ledger.moved_s,
    }


def read_steps(url: str) -> Iterator[dict[str, Any]]:
    """The steps of a run that serves its metrics; one row with the problem if it does not answer."""
    address = url if url.startswith(("http://", "https://")) else f"http://{url}"
    address = address if address.endswith("/metrics") else f"{address.rstrip('/')}/metrics"
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_SECONDS) as answer:
            text = answer.read(_PAGE_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        reason = getattr(reason, "strerror", None) or reason
        yield {
            "at": url,
            "step": None,
            "problem": f"{address} does not answer ({reason}): it is there while its pipeline runs",
        }
        return
    yield from ({"at": url, "step": step, **values} for step, values in parse_steps(text).items())


def parse_steps(text: str) -> dict[str, dict[str, float]]:
    """The figures of each step in a page of `forebay pipeline run --metrics`."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is not None:
            step = re.sub(r"\\(.)", lambda each: "\n" if each[1] == "n" else each[1], sample["step"])
            found[step][sample["name"]] = float(sample["value"])
    return dict(found)
