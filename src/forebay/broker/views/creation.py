"""New views: the query is compiled in a thread, for its errors only, and then stored as it was written."""

from __future__ import annotations

from forebay.broker.cluster.topic_changes import Metered, TopicChanges
from forebay.broker.live_config import LiveConfig
from forebay.broker.worker_threads import WorkerThreads
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.views.catalog import NewView, create_view, materialize_view
from forebay.core.views.view_error import ViewError
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import load


class ViewCreation:
    def __init__(self, topic_changes: TopicChanges, settings: LiveConfig, workers: WorkerThreads) -> None:
        self._topic_changes = topic_changes
        self._settings = settings
        self._workers = workers

    async def create(
        self, new: NewView, *, partitions: int, replicas: int, validate_only: bool, metered: Metered
    ) -> ClusterImage:
        """The image with the view. Raises KafkaError, with the place in the query where it is wrong."""
        pattern_size_max = self._settings.current.fetch.view_pattern_size_max
        await self._workers.run(lambda: _check(new, pattern_size_max))

        def plan(image: ClusterImage) -> list[Change]:
            if new.materialize:
                broker = self._settings.current
                return materialize_view(image, broker, new, partitions=partitions, replicas=replicas)
            return create_view(image, new, partitions=partitions, replicas=replicas)

        return await self._topic_changes.carry_out(plan, validate_only=validate_only, metered=metered)


def _check(new: NewView, pattern_size_max: int) -> None:
    try:
        load("forebay.core.views.view:compile_view")(
            new.where,
            new.select,
            keep_tombstones=new.keep_tombstones,
            pattern_size_max=pattern_size_max,
        )
    except ViewError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
