"""`forebay simulate`: a whole cluster in this process, on virtual time, with the faults of a seed.

The same seed tells the same story to the last event; its trace hash proves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from forebay.sim.simulation import Ending

_LINES_SHOWN = 60
_BROKERS_OF_A_PLOT = 3


@click.command()
@click.option("--seed", type=click.IntRange(min=0), required=True, help="The story to tell.")
@click.option(
    "--steps", type=click.IntRange(0, 10_000), default=12, show_default=True, help="How many faults happen."
)
@click.option(
    "--brokers", type=click.IntRange(1, 9), default=3, show_default=True, help="How large the cluster is."
)
@click.option("--plot", help="What the story is about, such as 'lost-power'; everything unless given.")
@click.option("--trace", is_flag=True, help="Print every event as it happens.")
@json_option
def simulate(seed: int, steps: int, brokers: int, plot: str | None, trace: bool, as_json: bool) -> None:
    """Run a cluster through the faults of a seed and check what it promises.

    Kills, power losses, pauses, cut networks, a store and disks that fail, clocks that are set, rude
    clients: all in this process and on virtual time. Exits with 1 if a promise was broken, with the last
    events before it.
    """
    from forebay.sim.plots.all_plots import PLOTS
    from forebay.sim.simulation import Story
    from forebay.sim.simulation import simulate as tell

    if plot is not None and plot not in PLOTS:
        raise click.BadParameter(f"{plot!r} is none of {', '.join(sorted(PLOTS))}", param_hint="--plot")
    if plot is not None and brokers < _BROKERS_OF_A_PLOT:
        raise click.BadParameter(f"{plot!r} needs at least {_BROKERS_OF_A_PLOT} brokers", param_hint="--plot")
    story = Story(seed=seed, steps=steps, brokers=brokers, plot=plot)
    ending = tell(story, on_line=click.echo if trace else None)
    if as_json:
        print_json(_summary(ending))
    else:
        print_table(["", ""], [[name, str(value)] for name, value in _summary(ending).items()])
    if ending.breach is not None:
        if not as_json and not trace:
            click.echo("The last events:", err=True)
            for line in ending.recent[-_LINES_SHOWN:]:
                click.echo(f"  {line}", err=True)
        raise click.ClickException(f"a promise was broken: {ending.breach}")


def _summary(ending: Ending) -> dict[str, object]:
    counts = ending.counts
    return {
        "seed": ending.story.seed,
        "trace hash": ending.trace_hash,
        "outcome": "every promise was kept" if ending.breach is None else "a promise was broken",
        "virtual seconds": round(ending.virtual_s, 3),
        "events": ending.events,
        "messages sent": counts.sent,
        "acknowledged by all": counts.acknowledged,
        "read": counts.read,
        "transactions committed": counts.committed,
        "transactions aborted": counts.aborted,
        "offsets committed": counts.offsets,
        "assignments to group members": counts.claims,
        "deliveries to share group members": counts.deliveries,
        "accepted or rejected by them": counts.finished,
        "changes by administrators": counts.changes,
        "brokers counted as dead": counts.verdicts,
        "faults": ", ".join(f"{name} {count}" for name, count in sorted(ending.faults.items())) or "none",
    }
