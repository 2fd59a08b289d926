"""Every change of a manifest, as a new manifest. The writer stores it by compare-and-set.

An object is named in the manifest before it exists (`pending`), and after it does not count any more until
it is deleted (`doomed`). So every object has an owner at any time, whatever crashes, and nothing has to be
listed: a leader that finds pending keys of another writer dooms them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from forebay.wire.tiers.manifest import Doomed, Manifest, RemoteSegment


def claimed(manifest: Manifest, leader_epoch: int, writer: str, delete_at_ms: int) -> Manifest:
    """Taken over by a leader, or by its next process: uploads of others that were under way are doomed."""
    assert leader_epoch >= manifest.leader_epoch, "a leader that was replaced must not write"
    return _next(manifest)._replace(
        leader_epoch=leader_epoch,
        writer=writer,
        pending=(),
        doomed=manifest.doomed + tuple(Doomed(key, delete_at_ms) for key in manifest.pending),
    )


def with_pending(manifest: Manifest, keys: Sequence[str]) -> Manifest:
    """About to upload these objects."""
    return _next(manifest)._replace(pending=(*manifest.pending, *keys))


def fitting(manifest: Manifest, segments: Sequence[RemoteSegment]) -> list[RemoteSegment]:
    """Those of the copied segments that continue the manifest. Messages may have been deleted meanwhile."""
    found: list[RemoteSegment] = []
    end = manifest.next_offset
    for segment in segments:
        begins = segment.base_offset == end or (
            not manifest.segments and not found and segment.base_offset < end < segment.next_offset
        )
        if begins and segment.key in manifest.pending:
            found.append(segment)
            end = segment.next_offset
    return found


def with_copied(manifest: Manifest, segments: Sequence[RemoteSegment]) -> Manifest:
    """The objects of these segments are there."""
    end = manifest.next_offset if manifest.segments else None
    for segment in segments:
        assert end in (None, segment.base_offset), f"{segment.key} does not follow {end}"
        assert segment.key in manifest.pending, f"{segment.key} was not announced"
        end = segment.next_offset
    copied = {segment.key for segment in segments}
    return _next(manifest)._replace(
        segments=(*manifest.segments, *segments),
        pending=tuple(key for key in manifest.pending if key not in copied),
    )


def given_up(manifest: Manifest, keys: Collection[str], delete_at_ms: int) -> Manifest:
    """These uploads have failed; the objects may be there all the same."""
    doomed = tuple(Doomed(key, delete_at_ms) for key in manifest.pending if key in keys)
    pending = tuple(key for key in manifest.pending if key not in keys)
    return _next(manifest)._replace(pending=pending, doomed=manifest.doomed + doomed)


def started_at(manifest: Manifest, start_offset: int, delete_at_ms: int) -> Manifest:
    """Messages below this offset are deleted, and segments that lie wholly below it."""
    gone = [segment for segment in manifest.segments if segment.next_offset <= start_offset]
    return _next(manifest)._replace(
        start_offset=max(start_offset, manifest.start_offset),
        segments=manifest.segments[len(gone) :],
        doomed=manifest.doomed + tuple(Doomed(segment.key, delete_at_ms) for segment in gone),
    )


def cut_off(manifest: Manifest, lost_from: int, delete_at_ms: int) -> Manifest:
    """Messages from this offset on are of a lost history: they must never be served.

    A segment that holds both is kept for its first part.
    """
    kept = tuple(segment for segment in manifest.segments if segment.base_offset < lost_from)
    gone = manifest.segments[len(kept) :]
    if kept and kept[-1].next_offset > lost_from:
        kept = (*kept[:-1], clipped(kept[-1], lost_from))
    return _next(manifest)._replace(
        start_offset=min(manifest.start_offset, lost_from),
        segments=kept,
        doomed=manifest.doomed + tuple(Doomed(segment.key, delete_at_ms) for segment in gone),
    )


def begun_anew(manifest: Manifest, start_offset: int, delete_at_ms: int) -> Manifest:
    """Nothing that is here connects to the leader's log, which begins at this offset."""
    doomed = tuple(Doomed(segment.key, delete_at_ms) for segment in manifest.segments)
    return _next(manifest)._replace(start_offset=start_offset, segments=(), doomed=manifest.doomed + doomed)


def without_doomed(manifest: Manifest, keys: Collection[str]) -> Manifest:
    """These objects are deleted."""
    return _next(manifest)._replace(
        doomed=tuple(doomed for doomed in manifest.doomed if doomed.key not in keys)
    )


def due_for_deletion(manifest: Manifest, now_ms: int, count_max: int) -> list[str]:
    return [doomed.key for doomed in manifest.doomed if doomed.delete_at_ms <= now_ms][:count_max]


def clipped(segment: RemoteSegment, end: int) -> RemoteSegment:
    """Its part before this offset."""
    if segment.next_offset <= end:
        return segment
    epochs = tuple(entry for entry in segment.epochs if entry[1] < end)
    return segment._replace(next_offset=end, epochs=epochs)


def _next(manifest: Manifest) -> Manifest:
    return manifest._replace(version=manifest.version + 1)
