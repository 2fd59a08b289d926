"""`make demo`: Forebay in eight chapters, each of which checks by itself what it shows.

    make demo                      # all of them, about two minutes
    make demo ARGS="cluster"       # some of them
    make demo ARGS="--console"     # a web console, and something to see there, until Ctrl-C

Everything here is what a user would do, with the clients that users have. All servers listen on free ports of
the loopback interface, live in temporary directories, and are gone afterwards, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from demo_stage import Facts, Failed, Skipped, console, table
from forebay.errors import ForebayError

CHAPTERS = {
    "broker": ("demo_broker", "one broker, and kill -9"),
    "queue": ("demo_queue", "a queue for workers, one of which is killed"),
    "delays": ("demo_delays", "messages for later, and kill -9 while they wait"),
    "views": ("demo_views", "a topic through a query, and a topic that is filled by it"),
    "partitions": ("demo_partitions", "12 partitions become 4 under load"),
    "tiers": ("demo_tiers", "a disk that holds a little, and a history that holds all"),
    "cluster": ("demo_cluster", "three brokers, and a leader that is killed"),
    "spark": ("demo_spark", "a live pipeline on Spark, an archive, and a replay"),
}
NAMES = ", ".join(CHAPTERS)
KEPT, SKIPPED, BROKEN = "[bold green]as promised[/]", "[bold yellow]skipped[/]", "[bold red]failed[/]"


@dataclass(frozen=True, slots=True)
class Outcome:
    chapter: str
    verdict: str
    facts: Facts
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parsed(arguments)
    interrupted: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        interrupted.append(number)
        raise KeyboardInterrupt

    # As Ctrl-C does: whatever was started is stopped on the way out.
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    begun = time.perf_counter()
    try:
        failed = _play_all(given, begun)
        if given.console:
            importlib.import_module("demo_console").show()
    except BaseException:
        if not interrupted:  # the Kafka client can turn the interrupt into an error of its own
            raise
        console.print("\ninterrupted; everything is stopped")
        return 130
    return int(failed)


def _play_all(given: argparse.Namespace, begun: float) -> bool:
    """True if a chapter has failed."""
    names = given.chapters or ([] if given.console else CHAPTERS)
    outcomes = [_play(name, given.short) for name in names]
    if outcomes:
        _summarise(outcomes, time.perf_counter() - begun)
    return any(outcome.verdict == BROKEN for outcome in outcomes)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description="Show what Forebay does.")
    parser.add_argument(
        "chapters", nargs="*", type=_chapter, metavar="CHAPTER", help=f"{NAMES}; all unless given"
    )
    parser.add_argument("--console", action="store_true", help="a web console of a small shop, until Ctrl-C")
    parser.add_argument("--short", action="store_true", help="with fewer messages and fewer events")
    return parser.parse_args(arguments)


def _chapter(name: str) -> str:
    if name not in CHAPTERS:
        raise argparse.ArgumentTypeError(f"there is no chapter {name}: choose {NAMES}")
    return name


def _play(name: str, short: bool) -> Outcome:
    """A chapter that fails does not keep the others from being shown."""
    module, title = CHAPTERS[name]
    console.print(f"\n[bold]{name}: {title}[/]")
    begun = time.perf_counter()
    verdict, facts = BROKEN, []
    try:
        # Imported when it is its turn: each brings libraries that the others do without.
        facts = importlib.import_module(module).play(short)
        verdict = KEPT
    except Skipped as skipped:
        verdict, facts = SKIPPED, [("skipped", str(skipped))]
    except (Failed, ForebayError) as failure:
        facts = [("failed", str(failure))]
    if verdict != KEPT:
        console.print(f"{verdict}: {facts[0][1]}", soft_wrap=True)
    return Outcome(name, verdict, facts, time.perf_counter() - begun)


def _summarise(outcomes: Sequence[Outcome], seconds: float) -> None:
    console.print("\n[bold]summary[/]")
    shown = table("chapter", "what happened", "what came of it", words=3)
    for outcome in outcomes:
        for row, (what, result) in enumerate(outcome.facts):
            shown.add_row(outcome.chapter if row == 0 else "", what, result)
        shown.add_row("", f"in {outcome.seconds:.0f} s", outcome.verdict, end_section=True)
    console.print(shown)
    verdicts = {outcome.verdict for outcome in outcomes}
    if BROKEN not in verdicts:
        words = "all as promised" if verdicts == {KEPT} else "what ran is as promised"
        console.print(f"[bold green]{words}[/], in {seconds:.0f} s")
    console.print(
        "Try it yourself: [bold].venv/bin/forebay serve[/], or [bold].venv/bin/forebay cluster start[/]; "
        "then [bold].venv/bin/forebay --help[/]. To see it in a browser: [bold]make demo ARGS=--console[/]",
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
