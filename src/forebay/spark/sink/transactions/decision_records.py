"""Where brokers keep a decision: as the offset of a group, under each topic that the batch was written to.

Brokers delete the offset of a group together with its topic. A job over several topics must not be written
again because one of them was deleted, so its decision is under all of them. It is long, with every task in
it. Where the brokers commit the tasks in one step with it, nobody needs the list again: there the first topic
alone has it, and the others that the batch is decided.

A decision that is too long for an offset goes on in further groups, under the same topic. Their names have a
character that no name of a user may have. Earlier versions named them like the groups of other names
(`earlier_group_of`), and put `;` behind the number of pieces.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.sink.producer import Identity
from forebay.spark.sink.transactions.participants import (
    ONE_PIECE,
    SLOT,
    Decision,
    earlier_group_of,
    group_of,
    parsed,
    pieces_of,
)
from forebay.spark.wire.connections import GROUP, TRANSACTION, Cluster, check
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from forebay.wire.messages.offset_fetch import OffsetFetchRequest
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_log = logging.getLogger(__name__)

_ADD_OFFSETS_VERSION = 3
_TXN_OFFSET_COMMIT_VERSION = 4
_OFFSET_FETCH_VERSION = 7
_WITH_RETENTION_VERSION = 4
"""The last one in which OffsetCommit says how long the offset is kept."""
_KEPT_MS = 1000 * 365 * 24 * 3600 * 1000
_GONE = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_HEAD = re.compile(r"(?P<pieces>\d+)(?P<mark>[;:])")


class Slot(NamedTuple):
    """The record of a group under one topic."""

    batch_id: int
    pieces: int
    mark: str
    text: str
    """The first piece."""

    def groups(self, name: str) -> list[str]:
        """Those of the further pieces."""
        named = earlier_group_of if self.mark == ONE_PIECE else group_of
        return [named(name, n) for n in range(1, self.pieces)]


class DecisionRecords:
    """The records that brokers keep for one query or job."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._group = group_of(name)

    def read(self, *, stable: bool) -> Decision | None:
        slots = self._slots(stable)
        if not slots:
            return None
        batch_id = max(slot.batch_id for slot in slots.values())
        latest = {topic: slot for topic, slot in slots.items() if slot.batch_id == batch_id}
        # Of one decision, the longest text is the one that has the tasks in it.
        topic, slot = max(latest.items(), key=lambda found: (found[1].pieces, len(found[1].text), found[0]))
        text = slot.text
        for group in slot.groups(self._name):
            number, piece = self._offsets(group, stable).get(topic, (-1, ""))
            if number != batch_id:
                # Another driver has decided the next batch between two of our questions.
                raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"{self._group} is being written")
            text += piece
        return parsed(batch_id, sorted(latest), text)

    def add(
        self, identity: Identity, decision: Decision, pieces: Sequence[str], *, in_one_step: bool
    ) -> None:
        """Record a decision in the driver's transaction.

        `in_one_step`: the participants are committed with it, so that the list is needed only once.
        """
        short = _short(decision)
        for n, piece in enumerate(pieces):
            group = group_of(self._name, n)
            full = decision.topics[:1] if in_one_step else decision.topics
            texts = dict.fromkeys(full, piece)
            if n == 0:
                texts |= dict.fromkeys(decision.topics[len(full) :], short)
            self._cluster.attempt(partial(self._add_group, identity, group))
            self._cluster.attempt(partial(self._put, identity, group, decision.batch_id, texts))

    def shorten(self, decision: Decision) -> None:
        """Keep of a decision whose participants are committed only that it was made.

        Forebay's brokers never let it expire. Others are told to keep it: OffsetCommit could say for how long
        until version 4, and brokers that serve these versions still do as it says.
        """
        slots = self._cluster.attempt(partial(self._slots, True))
        texts = dict.fromkeys(decision.topics, _short(decision))
        self._cluster.attempt(partial(self._replace, decision.batch_id, texts))
        self._delete_further(slots)

    def delete(self) -> bool:
        """Under all topics, also those of earlier batches. Whether there was anything."""
        slots = self._cluster.attempt(partial(self._slots, True))
        self._delete_further(slots)
        for topic in slots:
            self._cluster.attempt(partial(self._delete, self._group, topic))
        return bool(slots)

    # -- requests -------------------------------------------------------------------------------------------

    def _slots(self, stable: bool) -> dict[str, Slot]:
        """By topic. A further piece of another name, which earlier versions have put here, is passed over."""
        found = {}
        for topic, (batch_id, text) in self._offsets(self._group, stable).items():
            head = _HEAD.match(text)
            if head is not None:
                found[topic] = Slot(batch_id, int(head["pieces"]), head["mark"], text[head.end() :])
        return found

    def _offsets(self, group: str, stable: bool) -> dict[str, tuple[int, str]]:
        """Number and metadata under each topic."""
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=stable)
        answer = self._cluster.coordinator(group, GROUP).ask(request, _OFFSET_FETCH_VERSION)
        check(answer.error_code, f"the offsets of {group}")
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"the offset of {group}")
                if partition.partition_index == SLOT and partition.committed_offset >= 0:
                    found[topic.name] = (partition.committed_offset, partition.metadata or "")
        return found

    def _add_group(self, identity: Identity, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group,
        )
        answer = self._cluster.coordinator(self._group, TRANSACTION).ask(request, _ADD_OFFSETS_VERSION)
        check(answer.error_code, f"{group} in a transaction")

    def _put(self, identity: Identity, group: str, batch_id: int, texts: Mapping[str, str]) -> None:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=SLOT, committed_offset=batch_id, committed_metadata=text
                    )
                ],
            )
            for topic, text in texts.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self._group,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=topics,
        )
        answer = self._cluster.coordinator(group, GROUP).ask(request, _TXN_OFFSET_COMMIT_VERSION)
        codes = {topic.name: each.error_code for topic in answer.topics for each in topic.partitions}
        self._check(codes, f"batch {batch_id} of {self._name}")

    def _check(self, codes: Mapping[str, int], what: str) -> None:
        """One topic has to take the record. One that we may write and not read is passed over."""
        refused = [topic for topic, code in codes.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        for topic, code in codes.items():
            if topic not in refused or len(refused) == len(codes):
                check(code, f"{what} under topic {topic}")
        if refused:
            _log.warning("%s is not recorded under %s, which we may not read", what, ", ".join(refused))

    def _replace(self, batch_id: int, texts: Mapping[str, str]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=SLOT, committed_offset=batch_id, committed_metadata=text
                    )
                ],
            )
            for topic, text in texts.items()
        ]
        request = OffsetCommitRequest(group_id=self._group, retention_time_ms=_KEPT_MS, topics=topics)
        answer = self._cluster.coordinator(self._group, GROUP).ask(request, _WITH_RETENTION_VERSION)
        codes = {topic.name: each.error_code for topic in answer.topics for each in topic.partitions}
        self._check(codes, f"the record of {self._name}")

    def _delete_further(self, slots: Mapping[str, Slot]) -> None:
        for topic, slot in slots.items():
            for group in slot.groups(self._name):
                self._cluster.attempt(partial(self._delete, group, topic))

    def _delete(self, group: str, topic: str) -> None:
        """Delete the offset: brokers do not let such a group be deleted as consumer groups are."""
        slot = OffsetDeleteRequestPartition(partition_index=SLOT)
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[slot])]
        )
        answer = self._cluster.coordinator(group, GROUP).ask(request)
        codes = [
            answer.error_code,
            *(each.error_code for found in answer.topics for each in found.partitions),
        ]
        for code in codes:
            if code not in _GONE:
                check(code, f"group {group}")


def _short(decision: Decision) -> str:
    (piece,) = pieces_of(replace(decision, participants=()).text())
    return piece
