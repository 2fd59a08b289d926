"""Writes the table of metrics in docs/monitoring.md from the catalog in the code: the page cannot lie.

`--check` writes nothing and fails when the page is out of date; a test runs the same comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from forebay.broker.prometheus.catalog import SECTIONS
from forebay.broker.prometheus.families import Family

PAGE = Path(__file__).parent.parent / "docs" / "monitoring.md"

_HEADING = "## All metrics\n"
_INTRODUCTION = f"""{_HEADING}
Written by `make docs` from `src/forebay/broker/prometheus/catalog.py`; a test keeps it current.
The last column says whose dashboards know the name.
"""


def render() -> str:
    tables = (f"### {title}\n\n{_table(families)}" for title, families in SECTIONS.items())
    return "\n".join((_INTRODUCTION, *tables))


def _table(families: Iterable[Family]) -> str:
    lines = ["| Metric | Type | Labels | Meaning | Known from |", "|---|---|---|---|---|"]
    for each in families:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        meaning = each.help.replace("|", "\\|")
        lines.append(f"| `{each.name}` | {each.kind} | {labels} | {meaning} | {each.known_from} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    before = PAGE.read_text()
    page = before.partition(_HEADING)[0] + render()
    if "--check" in sys.argv[1:]:
        if page == before:
            return 0
        sys.stderr.write(f"{PAGE.name} is out of date: run `make docs`\n")
        return 1
    PAGE.write_text(page)
    sys.stdout.write(f"wrote {PAGE.name}: {sum(map(len, SECTIONS.values()))} metrics\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
