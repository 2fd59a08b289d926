"""DescribeDisk: what this broker's disk holds, beside what the store says, for `forebay cluster check`."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.coordinators.producer_ids import end_of_ids
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.metadata import Metadata
from forebay.coordination.producer_id_counter import producer_id_in
from forebay.coordination.store import KeyValue, Store, StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.replicas.restored_partitions import ClaimBook, unsettled_partitions
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.storage.datadir import DataDir
from forebay.storage.store_evidence import StoreEvidence
from forebay.wire.messages.describe_disk import (
    DescribeDiskRequest,
    DescribeDiskResponse,
    DiskPartition,
    WaitingPartition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskReport:
    """The parts that a report is made from."""

    node_id: int
    data: DataDir
    store: Store
    metadata: Metadata
    partitions: PartitionTable
    workers: WorkerThreads


def handle(
    report: DiskReport, background: Background, context: RequestContext, _: DescribeDiskRequest
) -> Reply:
    return answer_later(background, context.defer(), _answer(report), "describing the disk")


async def _answer(report: DiskReport) -> DescribeDiskResponse:
    image, known = report.metadata.image, report.data.store_evidence or StoreEvidence()
    held = report.partitions.all()
    try:
        identity = await report.store.identity()
        counter = await report.store.get(report.metadata.keys.producer_ids)
        strays = await report.workers.run(report.data.aside.names)
    except KafkaError as error:
        return DescribeDiskResponse(error_code=error.code, error_message=error.message)
    except OSError as error:
        return DescribeDiskResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
    return DescribeDiskResponse(
        node_id=report.node_id,
        store_behind=report.data.store_behind,
        restore=image.restore.generation,
        store_revision=identity.revision,
        store_index=identity.index,
        remembered_revision=known.revision,
        remembered_index=known.index,
        producer_ids_next=_counted(counter),
        producer_ids_end=max((end_of_ids(each.producers) for each in held), default=0),
        partitions=[_described(image, each) for each in held],
        waiting=_waiting(image),
        strays=strays,
    )


def _counted(counter: KeyValue | None) -> int:
    """The next producer id; -1 if the store has something else there."""
    try:
        return 0 if counter is None else producer_id_in(counter)
    except StoreError:
        return -1


def _described(image: ClusterImage, partition: Partition) -> DiskPartition:
    state = image.partition(partition.topic, partition.index)
    return DiskPartition(
        topic=partition.topic,
        partition=partition.index,
        leader_epoch=-1 if state is None else state.leader_epoch,
        last_epoch=partition.last_epoch,
        end_offset=partition.log.end_offset,
        high_watermark=partition.high_watermark,
    )


def _waiting(image: ClusterImage) -> list[WaitingPartition]:
    if not image.unsettled:
        return []
    book = ClaimBook(image)
    return [
        WaitingPartition(
            topic=topic.name,
            partition=state.index,
            awaited=sorted(book.missing((topic.topic_id, state.index), state.replicas)),
        )
        for topic, state in unsettled_partitions(image)
    ]
