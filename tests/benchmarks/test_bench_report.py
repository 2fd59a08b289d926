"""The judgement of figures: what passes, what misses, what is only told."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import page, report
from bench.latency import percentiles
from bench.load import Measure, Rounds
from bench.machine import remark
from bench.plot import advantage
from bench.report import Figure, rounded, summary


def figure(**settings: object) -> Figure:
    return Figure(**{"group": "g", "name": "n", "value": 50.0, "unit": "µs", **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "passed"),
    [
        ({"limit": 10.0, "at_most": 5.0}, True),
        ({"limit": 10.0, "at_most": 4.9}, False),
        ({"limit": 200.0, "at_least": 0.25}, True),
        ({"limit": 201.0, "at_least": 0.25}, False),
        ({"limit": 1.0, "at_most": 60.0, "judged": "value"}, True),
        ({"limit": 1.0, "at_most": 40.0, "judged": "value"}, False),
        ({"limit": 10.0}, None),
    ],
)
def test_a_target_is_held_against_the_ratio_or_the_value(
    settings: dict[str, object], passed: bool | None
) -> None:
    assert figure(**settings).passed is passed


def test_the_target_says_which_of_the_two_it_speaks_of() -> None:
    assert figure(limit=10.0, at_most=5.0).target == "≤ 5.00 x"
    assert figure(at_most=60.0, judged="value").target == "≤ 60.0 µs"


def test_an_advantage_counts_what_is_good() -> None:
    assert advantage(figure(value=50.0, limit=10.0, unit="MB/s")) == 5.0
    assert advantage(figure(value=50.0, limit=200.0, unit="µs")) == 4.0


def test_the_page_answers_with_pictures_and_without_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was measured stands on it; what was not is said to be missing."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(page, "PICTURES", tmp_path / "performance")
    alone = [
        figure(
            group="1 connection", name="produce", unit="MB/s", limit=80.0, limit_name="sendfile", at_least=0.9
        ),
        figure(group="cost with 100 segments", name="append", unit="µs/request", limit=40.0),
        figure(group="groups", name="commits", unit="/s"),
    ]
    report.save("forebay", alone, neighbours=0.0)
    beside = [figure(group="throughput", name="librdkafka", unit="MB/s", limit=25.0, limit_name="Kafka")]
    report.save("kafka", beside, neighbours=0.3, kafka_version="4.3.1")
    page.write_docs()
    text = (tmp_path / "performance.md").read_text()
    pictures = {path.name for path in (tmp_path / "performance").iterdir()}
    assert pictures == {"one-broker.png", "limits.png", "growth.png"}
    assert all(f"(performance/{name})" in text for name in pictures)
    assert "| librdkafka | 50.0 MB/s | 25.0 | 2.00 |" in text
    assert "| produce | 50.0 MB/s | 80.0 (sendfile) | 0.62 |" in text
    assert "| commits | 50.0 /s |" in text
    assert text.count("Not measured on this machine.") == 3
    assert "30% of the machine" in text
    assert "MISS" not in text and "target" not in text


def test_the_summary_names_what_was_missed() -> None:
    figures = [figure(limit=10.0, at_most=5.0), figure(name="slow", limit=10.0, at_most=1.0), figure()]
    assert summary(figures) == "1 of 2 targets reached; missed: g: slow"


def test_saved_results_load_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    figures = [figure(limit=10.0, limit_name="echo", at_most=5.0), figure(at_least=1.0, judged="value")]
    report.save("some", figures, kafka_version="4")
    loaded = report.load("some")
    assert loaded is not None
    assert loaded[1] == figures
    assert loaded[0]["kafka_version"] == "4"
    assert report.load("other") is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(123456.0, "123,456"), (12.34, "12.3"), (1.234, "1.23"), (0.0123, "0.012"), (0, "0.00")],
)
def test_numbers_keep_the_digits_that_count(number: float, text: str) -> None:
    assert rounded(number) == text


def test_rounds_give_the_median_of_the_least_disturbed() -> None:
    rounds = Rounds(
        Measure(requests=1000, payload_bytes=2_000_000, seconds=s, cpu_s=c, disturbance=d)
        for s, c, d in ((9.0, 9.0, 0.4), (1.0, 0.3, 0.0), (2.0, 0.1, 0.01), (4.0, 0.2, 0.02), (8.0, 8.0, 0.3))
    )
    assert rounds.median("requests_per_s") == 500
    assert rounds.median("mb_per_s") == 1.0
    assert rounds.median("cpu_us_per_request") == pytest.approx(200)
    assert rounds.median("cpu_s_per_gb") == pytest.approx(100)


def test_percentiles_are_samples_in_microseconds() -> None:
    latency = percentiles([1000 * n for n in range(1000, 0, -1)])
    assert (latency.p50_us, latency.p99_us, latency.p999_us) == (501, 991, 1000)


def test_only_a_noisy_machine_gets_a_remark() -> None:
    assert remark(0.01) == ""
    assert "46%" in remark(0.46)
