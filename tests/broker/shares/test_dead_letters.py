"""Records that share groups give up end in the dead-letter topic, once, whatever dies in between."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.record_moves.appends import MoveAppends
from forebay.broker.record_moves.journal import MoveJournal
from forebay.broker.shares.dead_letters.letters_to_move import DeadLetterSource
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import split
from support.brokers.dead_letters import (
    DEAD,
    GROUP,
    GROUP_TYPE,
    MESSAGES,
    REJECT,
    RELEASE,
    SOURCE,
    TOPIC,
    ShareStory,
    offsets_of,
)
from support.brokers.local_cluster import eventually, local_cluster, retried

NO_CREATION = {"errors.deadletterqueue.auto.create.topics.enable": "false"}
TAKES_DEAD_LETTERS = "errors.deadletterqueue.group.enable"
DAY_MS = 86_400_000
NOT_SYNCED = {"forebay.flush.policy": "interval", "log.flush.interval.ms": "3600000"}


class Hold:
    """Stops whoever calls a method of a class, before or after it has done its work, until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str, *, after: bool) -> None:
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()
        work = getattr(owner, name)

        async def held(*args: Any, **kwargs: Any) -> Any:
            outcome = await work(*args, **kwargs) if after else None
            self.reached.set()
            await self.let_go.wait()
            return outcome if after else await work(*args, **kwargs)

        patch.setattr(owner, name, held)


async def test_a_rejected_record_becomes_a_dead_letter_with_its_story(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.acknowledge(REJECT, 2)
        (letter,) = await story.dead_letters(1)
        assert (letter.key, letter.value) == (b"key", b"v2")
        assert dict(letter.headers) == {
            "__dlq.errors.topic": SOURCE.encode(),
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"2",
            "__dlq.errors.group": GROUP.encode(),
            "__dlq.errors.delivery.count": b"1",
            "__dlq.errors.message": b"Offset rejected by client.",
        }
        assert cluster[1].metrics.dead_letters == 1


async def test_a_record_that_was_delivered_too_often_becomes_one_too(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin(**{"errors.deadletterqueue.copy.record.enable": "false"})
        await story.acknowledge(RELEASE, 0, 1)
        await story.acknowledge(RELEASE, 0)
        (letter,) = await story.dead_letters(1)
        about = dict(letter.headers)
        assert (letter.key, letter.value) == (None, None)
        assert about["__dlq.errors.delivery.count"] == b"2"
        assert about["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


POINTS = [
    pytest.param(MoveJournal, "write", False, id="before it is journaled"),
    pytest.param(MoveJournal, "write", True, id="journaled, not appended"),
    pytest.param(MoveAppends, "append", True, id="appended, not confirmed"),
    pytest.param(DeadLetterSource, "confirm", True, id="confirmed, still in the journal"),
]


@pytest.mark.parametrize(("owner", "name", "after"), POINTS)
async def test_a_broker_that_dies_anywhere_leaves_one_copy(
    tmp_path: Path, owner: type, name: str, after: bool
) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, owner, name, after=after)
            await story.acknowledge(REJECT, 1, 3)
            await hold.reached.wait()
            await cluster.crash(1)
        await cluster.start(1)
        await eventually(lambda: cluster[1].partitions.get(SOURCE, 0))
        await story.share()
        await story.acknowledge(REJECT, 4)  # so that the journal is opened, whatever was left
        assert offsets_of(await story.dead_letters(3)) == [1, 3, 4]


async def test_a_message_with_the_offset_of_a_lost_dead_letter_has_a_letter_of_its_own(
    tmp_path: Path,
) -> None:
    """Although a move of the lost one is in the journal, under the same offset, and was made."""
    async with local_cluster(tmp_path, NOT_SYNCED, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin([b"old0"], [b"old1"])
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, MoveAppends, "append", after=True)
            await story.acknowledge(REJECT, 1)
            await hold.reached.wait()
            directory = Path(cluster[1].data.path)
            await cluster.crash(1)
        (file,) = (directory / f"{SOURCE}-0").glob("*.log")
        os.truncate(file, split(memoryview(file.read_bytes()))[1][0])
        (directory / "boot-id").write_text("the boot before")
        await cluster.start(1)
        await eventually(lambda: cluster[1].partitions.get(SOURCE, 0))
        await story.send([b"new1"])
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, MoveJournal, "open", after=True)
            await story.acknowledge(REJECT, 1)
            await hold.reached.wait()
            machine = (await story.share()).machine
            assert machine is not None
            await eventually(machine.dead_letters)
            hold.let_go.set()
        letters = await story.dead_letters(2)
        assert [(letter.value, offsets_of([letter])) for letter in letters] == [
            (b"old1", [1]),
            (b"new1", [1]),
        ]


@pytest.mark.parametrize(("owner", "name", "after"), POINTS)
async def test_a_leader_that_was_deposed_and_goes_on_leaves_one_copy(
    tmp_path: Path, owner: type, name: str, after: bool
) -> None:
    async with local_cluster(tmp_path, brokers=3) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        old = cluster.leader(SOURCE)
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, owner, name, after=after)
            await story.acknowledge(REJECT, 1, 3)
            await hold.reached.wait()
        with cluster.uninformed(old):
            await cluster.lead(SOURCE, 0, next(node for node in cluster.nodes if node != old))
            await story.share()
            hold.let_go.set()
            await story.acknowledge(REJECT, 4)
            letters = await story.dead_letters(3)
        assert offsets_of(letters) == [1, 3, 4]


@pytest.mark.parametrize("brokers", [1, 3])
async def test_dead_letters_go_on_when_no_member_comes_back(tmp_path: Path, brokers: int) -> None:
    async with local_cluster(tmp_path, brokers=brokers) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        old = cluster.leader(SOURCE)
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, MoveAppends, "append", after=True)
            await story.acknowledge(REJECT, 1, 3)
            await hold.reached.wait()
            await cluster.crash(old)
        if brokers == 1:
            await cluster.start(old)
        else:
            await cluster.bury(old)
        await eventually(lambda: cluster[cluster.leader(SOURCE)].partitions.get(SOURCE, 0))

        async def told() -> tuple[bool, int]:
            for node in cluster.nodes:
                await cluster[node].dead_letter_watch.look()
            shares = [share for node in cluster.nodes for share in cluster[node].shares.shares]
            return True, int(not shares)

        await retried(told, True)
        await eventually(lambda: not any(len(list(cluster[n].shares.shares)) for n in cluster.nodes))
        assert offsets_of(await story.read_dead()) == [1, 3]


async def test_targets_on_other_brokers_are_written(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=3) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.create(DEAD)
        await story.configure(TOPIC, DEAD, {TAKES_DEAD_LETTERS: "true"})
        for node in cluster.nodes:
            await cluster.lead(DEAD, 0, node)
            await story.acknowledge(REJECT, node)
            await story.dead_letters(node)


async def test_dead_letters_wait_for_their_topic_and_say_so(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, NO_CREATION, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.acknowledge(REJECT, 0, 5)
        share = await story.share()
        await eventually(lambda: "does not exist" in share.mover.problem)
        assert "forebay_dead_letters_waiting 2\n" in cluster[1].exporter.page()
        assert "forebay_dead_letters_blocked 1\n" in cluster[1].exporter.page()
        await story.create(DEAD)
        await eventually(lambda: TAKES_DEAD_LETTERS in share.mover.problem)
        cluster[1].partitions.get(SOURCE, 0).log.advance_start(3)
        await story.configure(TOPIC, DEAD, {TAKES_DEAD_LETTERS: "true"})
        letters = await story.dead_letters(2)
        assert [letter.value for letter in letters] == [None, b"v5"]  # the first was deleted meanwhile
        assert share.mover.problem == ""
        assert "forebay_dead_letters_waiting 0\n" in cluster[1].exporter.page()


async def test_a_target_that_is_deleted_and_made_again_gets_what_was_on_its_way(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.acknowledge(REJECT, 0)
        await story.dead_letters(1)
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, MoveAppends, "append", after=False)
            await story.acknowledge(REJECT, 1, 3)
            await hold.reached.wait()
        before = cluster[1].image.topics[DEAD].topic_id
        await story.delete(DEAD)
        await story.create(DEAD)
        await story.configure(TOPIC, DEAD, {TAKES_DEAD_LETTERS: "true"})
        assert cluster[1].image.topics[DEAD].topic_id != before
        hold.let_go.set()
        assert offsets_of(await story.dead_letters(2)) == [1, 3]


async def test_messages_that_are_too_large_for_the_target_go_without_their_value(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.create(DEAD)
        await story.configure(TOPIC, DEAD, {TAKES_DEAD_LETTERS: "true", "max.message.bytes": "1200"})
        await story.begin([b"a", b"b" * 2000, b"c"], [b"d" * 500])
        await story.acknowledge(REJECT, 0, 1, 2, 3)
        letters = await story.dead_letters(4)
        assert offsets_of(letters) == [0, 1, 2, 3]
        assert [letter.value for letter in letters] == [b"a", None, b"c", b"d" * 500]


async def test_what_is_journaled_goes_on_when_its_target_takes_less_than_before(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin([b"%d" % n for n in range(60)])
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, MoveJournal, "write", after=True)
            await story.acknowledge(REJECT, *range(60))
            await hold.reached.wait()
        await story.configure(TOPIC, DEAD, {"max.message.bytes": "4000"})
        target = cluster[1].partitions.get(DEAD, 0)
        await eventually(lambda: target.policy.max_message_bytes == 4000)
        hold.let_go.set()
        letters = await story.dead_letters(60)
        assert offsets_of(letters) == list(range(60))
        message = dict(letters[0].headers)["__dlq.errors.message"]
        assert message == b"Offset rejected by client. The record is too large for the dead-letter topic."


@pytest.mark.parametrize(
    ("bad", "good", "problem"),
    [
        ({"cleanup.policy": "compact,delete"}, {"cleanup.policy": "delete"}, "is compacted"),
        ({"max.message.bytes": "200"}, {"max.message.bytes": "2000"}, "too little for a dead letter"),
    ],
    ids=["compacted", "too small"],
)
async def test_targets_that_cannot_keep_dead_letters_are_waited_for(
    tmp_path: Path, bad: dict[str, str], good: dict[str, str], problem: str
) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.create(DEAD)
        await story.configure(TOPIC, DEAD, {TAKES_DEAD_LETTERS: "true", **bad})
        await story.acknowledge(REJECT, 0)
        share = await story.share()
        await eventually(lambda: problem in share.mover.problem)
        assert story.is_at_rest, "nothing is journaled for a topic that cannot have it"
        await story.configure(TOPIC, DEAD, good)
        await story.dead_letters(1)


def damage(directory: Path, value: bytes) -> None:
    """Change a message in its file, as a bad disk does."""
    (path,) = directory.glob(f"**/{SOURCE}-0/*.log")
    path.write_bytes(path.read_bytes().replace(value, value.swapcase()))


async def test_a_message_that_cannot_be_read_has_a_dead_letter_that_says_so(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin([b"good"], [b"bad"], [b"good"])
        damage(tmp_path, b"bad")
        await story.acknowledge(REJECT, 0, 1, 2)
        letters = await story.dead_letters(3)
        assert [letter.value for letter in letters] == [b"good", None, b"good"]
        assert b"its batch is damaged" in (dict(letters[1].headers)["__dlq.errors.message"] or b"")


async def test_what_was_damaged_when_its_move_was_planned_is_not_called_deleted_later(tmp_path: Path) -> None:
    """The broker that goes on with the move can read the messages, which are more than a move holds."""
    values = [bytes([letter]) * 300_000 for letter in b"abcd"]
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin(*([value] for value in values))
        for value in values:
            damage(tmp_path, value)
        with pytest.MonkeyPatch.context() as patch:
            hold = Hold(patch, MoveJournal, "write", after=True)
            await story.acknowledge(REJECT, 0, 1, 2, 3)
            await hold.reached.wait()
            await cluster.crash(1)
        for value in values:
            damage(tmp_path, value.swapcase())
        await cluster.start(1)
        await eventually(lambda: cluster[1].partitions.get(SOURCE, 0))
        letters = await story.dead_letters(4)
    told = [dict(letter.headers)["__dlq.errors.message"] for letter in letters]
    assert told == [b"Offset rejected by client. The record cannot be copied: its batch is damaged."] * 4


async def test_a_repeat_is_found_however_long_the_target_could_not_be_written(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.create(DEAD)
        await story.configure(TOPIC, DEAD, {TAKES_DEAD_LETTERS: "true"})
        target = cluster[1].partitions.get(DEAD, 0)
        await eventually(lambda: target.config.takes_dead_letters)
        append, attempted = MoveAppends.append, asyncio.Event()

        async def too_few_replicas(*args: Any) -> None:
            attempted.set()
            await append(*args)
            target.enough_replicas = False
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the answer was lost")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MoveAppends, "append", too_few_replicas)
            await story.acknowledge(REJECT, 1)
            await eventually(lambda: not target.enough_replicas)
            for day in range(3):
                attempted.clear()
                await attempted.wait()
                target.producers.expire(day * DAY_MS, DAY_MS, target.high_watermark)
        target.enough_replicas = True
        assert offsets_of(await story.dead_letters(1)) == [1]


async def test_groups_with_long_names_have_dead_letters_that_fit(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster, "ü" * 1200)
        await story.create(DEAD)
        await story.configure(TOPIC, DEAD, {TAKES_DEAD_LETTERS: "true", "max.message.bytes": "6000"})
        await story.begin()
        await story.acknowledge(REJECT, *range(6))
        assert [letter.value for letter in await story.dead_letters(6)] == [b"v%d" % n for n in range(6)]


async def test_many_dead_letters_go_in_order_a_part_at_a_time(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin(*([b"%d-%d" % (n, m) for m in range(60)] for n in range(20)))
        await story.acknowledge(REJECT, *range(1200))
        letters = await story.dead_letters(1200)
        assert [letter.value for letter in letters] == [
            b"%d-%d" % (n, m) for n in range(20) for m in range(60)
        ]


async def test_a_group_whose_dead_letter_topic_is_taken_away_gives_up_what_waits(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, NO_CREATION, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.acknowledge(REJECT, 0)
        share = await story.share()
        await eventually(lambda: share.mover.problem)
        await story.configure(GROUP_TYPE, GROUP, {"errors.deadletterqueue.topic.name": ""})
        await eventually(lambda: not share.dead_letters_waiting)
        assert DEAD not in cluster[1].image.topics


async def test_a_group_that_reads_its_dead_letter_topic_is_not_given_its_letters_again(
    tmp_path: Path,
) -> None:
    """They wait until another topic is named: each of them, rejected again, would become another."""
    async with local_cluster(tmp_path, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin(**{"errors.deadletterqueue.topic.name": SOURCE})
        await story.configure(TOPIC, SOURCE, {TAKES_DEAD_LETTERS: "true"})
        await story.acknowledge(REJECT, 2)
        share = await story.share()
        await eventually(lambda: "reads its dead-letter topic 'jobs' itself" in share.mover.problem)
        assert cluster[1].partitions.get(SOURCE, 0).log.end_offset == MESSAGES
        assert "forebay_dead_letters_waiting 1\n" in cluster[1].exporter.page()
        assert "forebay_dead_letters_blocked 1\n" in cluster[1].exporter.page()
        await story.configure(GROUP_TYPE, GROUP, {"errors.deadletterqueue.topic.name": DEAD})
        assert offsets_of(await story.dead_letters(1)) == [2]


async def test_a_prefix_is_asked_of_dead_letter_topics(tmp_path: Path) -> None:
    settings = {"errors.deadletterqueue.topic.name.prefix": "dlq."}
    async with local_cluster(tmp_path, settings, brokers=1) as cluster:
        story = ShareStory(cluster)
        await story.begin()
        await story.acknowledge(REJECT, 0)
        share = await story.share()
        await eventually(lambda: "must begin with 'dlq.'" in share.mover.problem)
