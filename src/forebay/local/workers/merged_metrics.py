"""One page of metrics of the pages of several workers: each sample gets the label `worker`."""

from __future__ import annotations

from collections.abc import Mapping


def merged(pages: Mapping[int, str]) -> str:
    """All samples of a metric stand together, below its help text and type, as Prometheus' text format asks.

    `pages` has the page of each worker by its number.
    """
    headers: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, page in pages.items():
        label, name = f'worker="{number}"', ""
        seen = set(headers)
        for line in page.splitlines():
            if line.startswith("#"):
                _, kind, *rest = line.split(" ", 3)
                if kind not in ("HELP", "TYPE"):
                    continue
                name = rest[0]
                if name not in seen:
                    headers.setdefault(name, []).append(line)
            elif line:
                samples.setdefault(name, []).append(_labelled(line, label))
    return "".join(
        f"{line}\n" for name, found in headers.items() for line in (*found, *samples.get(name, ()))
    )


def _labelled(sample: str, label: str) -> str:
    brace, space = sample.find("{"), sample.find(" ")
    if 0 <= brace < space:
        return f"{sample[: brace + 1]}{label},{sample[brace + 1 :]}"
    return f"{sample[:space]}{{{label}}}{sample[space:]}"
