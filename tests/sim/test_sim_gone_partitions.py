"""Stories in which partitions are folded, emptied and taken away, while producers and groups go on."""

from __future__ import annotations

from forebay.sim.simulation import Story, simulate


def test_closed_partitions_disappear_in_the_middle_of_a_story() -> None:
    lines: list[str] = []
    ending = simulate(Story(seed=1, plot="gone-partitions"), on_line=lines.append)
    assert ending.breach is None, ending.breach
    gone = next(number for number, line in enumerate(lines) if line.endswith("folding has 2 partitions"))
    sent = [line for line in lines[gone:] if " net folded-a:" in line]
    assert sent, "producers go on behind it"
