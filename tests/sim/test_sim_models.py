"""The shadows of groups, topics and keys: what they let pass, and what they do not."""

from __future__ import annotations

import pytest

from forebay.sim.models.facts import Transaction, TransactionOutcome
from forebay.sim.models.groups import Claim, Groups
from forebay.sim.models.keyed import KeyedValues, Write
from forebay.sim.models.producer_ids import ProducerIdOwners
from forebay.sim.models.topics import Topics

AT = ("exact", 0)
OTHER = ("exact", 1)


@pytest.fixture
def breaches() -> list[str]:
    return []


@pytest.fixture
def groups(breaches: list[str]) -> Groups:
    return Groups(breaches.append)


def claim(groups: Groups, member_id: str, epoch: int, *partitions: tuple[str, int]) -> None:
    groups.entered("crew", member_id)
    groups.claim(Claim(group="crew", member_id=member_id, epoch=epoch, partitions=partitions))


# -- offsets -----------------------------------------------------------------------------------------------


def test_an_offset_between_what_was_acknowledged_and_what_was_asked_is_fine(
    groups: Groups, breaches: list[str]
) -> None:
    groups.asked("crew", AT, 5)
    groups.committed("crew", AT, 5)
    groups.asked("crew", AT, 9)  # nobody knows whether it was carried out
    for offset in (5, 9):
        groups.fetched("crew", AT, offset, groups.floor("crew", AT))
    assert not breaches


@pytest.mark.parametrize("offset", [-1, 4, 10])
def test_an_offset_that_was_lost_or_made_up_is_a_breach(
    groups: Groups, breaches: list[str], offset: int
) -> None:
    groups.asked("crew", AT, 9)
    groups.committed("crew", AT, 5)
    groups.fetched("crew", AT, offset, groups.floor("crew", AT))
    assert len(breaches) == 1


def test_what_is_committed_after_a_fetch_began_is_not_held_against_it(
    groups: Groups, breaches: list[str]
) -> None:
    floor = groups.floor("crew", AT)
    groups.asked("crew", AT, 5)
    groups.committed("crew", AT, 5)
    groups.fetched("crew", AT, -1, floor)
    assert not breaches


# -- members -----------------------------------------------------------------------------------------------


def test_one_generation_gives_a_partition_to_one_member(groups: Groups, breaches: list[str]) -> None:
    claim(groups, "a", 1, AT)
    claim(groups, "b", 1, OTHER)
    claim(groups, "b", 2, AT, OTHER)
    assert not breaches
    claim(groups, "a", 2, AT)
    assert len(breaches) == 1


def test_a_commit_after_the_successor_was_told_is_a_breach(groups: Groups, breaches: list[str]) -> None:
    claim(groups, "a", 1, AT)
    assert groups.successor("crew", AT, "a", 1) is None
    claim(groups, "b", 2, AT)
    assert groups.successor("crew", AT, "b", 2) is None
    groups.not_overtaken("crew", AT, "b", None)
    assert not breaches
    groups.not_overtaken("crew", AT, "a", groups.successor("crew", AT, "a", 1))
    assert len(breaches) == 1


def test_a_member_that_kept_its_partition_has_no_successor(groups: Groups) -> None:
    claim(groups, "a", 1, AT)
    claim(groups, "a", 2, AT)
    assert groups.successor("crew", AT, "a", 1) is None


def test_what_a_dead_member_had_is_unowned_until_another_has_it(groups: Groups) -> None:
    assert groups.unowned("crew", [AT, OTHER]) == [AT, OTHER]
    claim(groups, "a", 1, AT)
    claim(groups, "b", 1, OTHER)
    assert not groups.unowned("crew", [AT, OTHER])
    groups.gone("crew", "a")
    assert groups.unowned("crew", [AT, OTHER]) == [AT]
    claim(groups, "b", 2, AT, OTHER)
    assert not groups.unowned("crew", [AT, OTHER])


# -- topics ------------------------------------------------------------------------------------------------


def test_topics_that_were_made_are_there_and_those_that_were_deleted_are_not() -> None:
    topics = Topics()
    topics.made("kept", 2)
    topics.made("gone", 1)
    topics.deleting("gone")
    topics.deleted("gone")
    assert not topics.wrong_about({"kept": 2, "of somebody else": 1})
    assert len(topics.wrong_about({"kept": 1})) == 1
    assert len(topics.wrong_about({"kept": 2, "gone": 1})) == 1
    assert len(topics.wrong_about({})) == 1


def test_a_topic_whose_deletion_was_not_confirmed_may_be_there_or_not() -> None:
    topics = Topics()
    topics.made("perhaps", 1)
    topics.deleting("perhaps")
    assert not topics.wrong_about({})
    assert not topics.wrong_about({"perhaps": 1})


def test_a_setting_is_what_was_confirmed_last_or_what_nobody_confirmed() -> None:
    topics = Topics()
    topics.set("exact", "segment.bytes", "1024")
    topics.may_have_set("exact", "segment.bytes", "4096")
    topics.set("exact", "segment.bytes", "2048")
    assert topics.settings() == {"exact": ["segment.bytes"]}
    assert [topics.may_be("exact", "segment.bytes", value) for value in ("1024", "2048", "4096")] == [
        False,
        True,
        True,
    ]


# -- keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "offset", "is_breach"),
    [
        (TransactionOutcome.COMMIT_ASKED, 7, False),
        (TransactionOutcome.COMMIT_ASKED, None, False),
        (TransactionOutcome.COMMIT_ASKED, 3, True),
        (TransactionOutcome.ABORTED, 7, True),
    ],
)
def test_a_message_is_gone_only_if_a_deletion_may_have_come_behind_it(
    breaches: list[str], outcome: TransactionOutcome, offset: int | None, is_breach: bool
) -> None:
    keyed, deletion = KeyedValues(breaches.append), Transaction("t", outcome)
    keyed.send(AT, b"key", Write(value=b"value", offset=5))
    keyed.send(AT, b"key", Write(value=b"", transaction=deletion, offset=offset))
    keyed.finish(AT, {})
    assert bool(breaches) is is_breach


# -- producer ids ------------------------------------------------------------------------------------------


def test_a_producer_id_belongs_to_one_producer(breaches: list[str]) -> None:
    owners = ProducerIdOwners(breaches.append)
    owners.give(0, "a")
    owners.give(1, "a")
    for _ in range(2):
        owners.give(2, "t", keeps=True)
    assert not breaches


@pytest.mark.parametrize(("producer", "keeps"), [("a", False), ("b", False), ("t", True)])
def test_a_producer_id_that_is_given_out_twice_is_a_breach(
    breaches: list[str], producer: str, keeps: bool
) -> None:
    owners = ProducerIdOwners(breaches.append)
    owners.give(7, "a")
    owners.give(7, producer, keeps=keeps)
    assert breaches == [f"{producer} was given the producer id 7, which a has"]
