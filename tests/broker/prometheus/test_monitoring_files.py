"""The files of examples/monitoring: every query is valid, and names what is on the page of a live broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml

from forebay.broker.prometheus.catalog import CATALOG
from support.busy_broker import busy_broker, scraped
from support.scraping import Scraped

ROOT = Path(__file__).parents[3]
FILES = ROOT / "examples" / "monitoring"
ALWAYS = {"job", "instance"}
"""Labels that Prometheus itself adds."""
OWN = {"up"}
"""Metrics that it makes itself."""


class Selector(NamedTuple):
    name: str
    labels: set[str]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FILES / "grafana-dashboard.json").read_text())
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panel_queries() -> list[tuple[str, str]]:
    return [
        (f"panel {panel['title']}", target["expr"].replace("$__rate_interval", "5m"))
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]


QUERIES = [*panel_queries(), *((f"rule {rule['alert']}", rule["expr"]) for rule in rules())]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    with busy_broker(tmp_path_factory.mktemp("busy")) as broker:
        yield scraped(broker)


def selectors(node: Any) -> Iterator[Selector]:
    """What a query asks Prometheus for."""
    match type(node).__name__:
        case "VectorSelector":
            yield Selector(node.name, {matcher.name for matcher in node.matchers.matchers})
        case "MatrixSelector":
            yield from selectors(node.vector_selector)
        case "Call":
            for argument in node.args:
                yield from selectors(argument)
        case "BinaryExpr":
            yield from selectors(node.lhs)
            yield from selectors(node.rhs)
        case "AggregateExpr" | "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
            yield from selectors(node.expr)
        case "NumberLiteral" | "StringLiteral":
            pass
        case other:
            raise AssertionError(f"{other} is not known here")


def grouped_by(node: Any) -> Iterator[tuple[set[str], Any]]:
    """The labels of each `by`, and what they are to be on."""
    if type(node).__name__ == "AggregateExpr" and node.modifier is not None:
        yield set(node.modifier.labels), node.expr
    for part in ("expr", "lhs", "rhs"):
        if getattr(node, part, None) is not None:
            yield from grouped_by(getattr(node, part))
    for argument in getattr(node, "args", None) or ():
        yield from grouped_by(argument)


def labels_of(name: str) -> set[str]:
    if name in OWN:
        return ALWAYS
    family = CATALOG.get(name) or CATALOG[re.sub(r"_(bucket|sum|count)$", "", name)]
    return {*family.labels, *ALWAYS, *(("le",) if name.endswith("_bucket") else ())}


def result_labels(node: Any) -> set[str]:
    """The labels that the result of a query has."""
    match type(node).__name__:
        case "AggregateExpr":
            return set() if node.modifier is None else set(node.modifier.labels)
        case "BinaryExpr":
            left = result_labels(node.lhs)
            return left or result_labels(node.rhs)
        case _:
            found = [labels_of(each.name) for each in selectors(node)]
            inner = getattr(node, "args", None) or ()
            aggregated = [result_labels(each) for each in inner if type(each).__name__ == "AggregateExpr"]
            return set.union(*aggregated) if aggregated else set.union(*found) if found else set()


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_every_query_names_metrics_and_labels_that_there_are(where: str, query: str, page: Scraped) -> None:
    parsed = promql_parser.parse(query)
    asked = list(selectors(parsed))
    assert asked, f"{where} asks for nothing"
    for selector in asked:
        assert selector.name in page.names | OWN, f"{where}: no broker has {selector.name}"
        assert selector.labels <= labels_of(selector.name), f"{where}: {selector}"
    for wanted, of in grouped_by(parsed):
        available = set.union(*(labels_of(each.name) for each in selectors(of)))
        assert wanted <= available, f"{where}: {wanted - available} is no label of {query}"


def test_rules_have_names_severities_and_words_that_can_be_filled_in() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 20
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}
        words = " ".join(rule["annotations"].values())
        used = set(re.findall(r"\$labels\.(\w+)", words))
        assert used <= result_labels(promql_parser.parse(rule["expr"])), rule["alert"]


def test_prometheus_reads_the_rules_beside_its_settings() -> None:
    settings = yaml.safe_load((FILES / "prometheus.yml").read_text())
    assert [(FILES / name).exists() for name in settings["rule_files"]] == [True]
    assert settings["scrape_configs"][0]["job_name"] == "forebay"


def test_the_dashboard_is_whole() -> None:
    found = dashboard()
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    variables = {each["name"] for each in found["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval"}
    assert used <= variables


@pytest.mark.parametrize("variable", dashboard()["templating"]["list"][1:], ids=lambda each: each["name"])
def test_the_variables_of_the_dashboard_have_values(variable: dict[str, Any], page: Scraped) -> None:
    name, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
    assert name in page.names
    assert label in labels_of(name)


def test_everything_in_the_catalog_is_on_the_page_of_a_broker_that_uses_it(page: Scraped) -> None:
    shown = {name.removesuffix("_total") for name in page.families}
    assert {name.removesuffix("_total") for name in CATALOG} - shown == set()


def test_the_table_of_the_docs_is_current() -> None:
    script = ROOT / "scripts" / "monitoring_docs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
