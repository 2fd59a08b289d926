"""Apache Kafka's own integration tests, of the version that `kafka-tests/pom.xml` names, on Forebay brokers.

`kafka_tests.txt` beside this file says which classes run, and which of their tests cannot pass here and why.
A listed test that passes, and one that fails without being listed, fail the test of their class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.java import kafka_tests

CLASS_S_MAX = 900.0
LIST = Path(__file__).with_name("kafka_tests.txt")

pytestmark = [pytest.mark.compat, pytest.mark.timeout(CLASS_S_MAX + 120)]


@dataclass
class Expected:
    """What is listed of a class of tests, each with the reason."""

    failing: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Those that would wait for minutes before they fail."""


def listed() -> dict[str, Expected]:
    """A line without indentation is a class. Its tests that cannot pass follow; a minus leaves one out."""
    found: dict[str, Expected] = {}
    for line in LIST.read_text().splitlines():
        text = line.partition("#")[0].rstrip()
        if not text:
            continue
        if not text.startswith(" "):
            found[text] = expected = Expected()
            continue
        name, _, reason = text.strip().partition(": ")
        assert reason.strip(), f"{text!r} has no reason"
        tests = expected.left_out if name.startswith("-") else expected.failing
        tests[name.removeprefix("-")] = reason.strip()
    return found


@pytest.fixture(scope="module", autouse=True)
def fetched() -> Iterator[None]:
    if reason := kafka_tests.why_not():
        pytest.skip(reason)
    yield


@pytest.mark.parametrize("test_class", listed())
def test_kafkas_own_tests(test_class: str, tmp_path: Path) -> None:
    expected = listed()[test_class]
    results = list(kafka_tests.run(test_class, expected.left_out, tmp_path, CLASS_S_MAX))
    seen = {result.method for result in results}
    failed = {result.method: result.error for result in results if result.error}
    unexpected = {method: error for method, error in failed.items() if method not in expected.failing}
    assert not unexpected, "\n\n".join(f"{method}: {error}" for method, error in unexpected.items())
    assert seen - expected.failing.keys(), "no test has passed"
    missing = sorted(expected.failing.keys() - seen)
    assert not missing, f"tests are listed that do not exist: {missing}"
    passing = sorted(expected.failing.keys() - failed.keys())
    assert not passing, f"tests are listed that pass: {passing}"
