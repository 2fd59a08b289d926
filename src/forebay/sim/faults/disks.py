"""Disks that refuse, are full, cannot be read, or return other bytes than were written."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from random import Random

from forebay.sim.faults.scene import LOOK_S, SHORT_S, Fault, Scene, Undo
from forebay.sim.world.node import DATA_DIR, SimNode
from forebay.sim.world.places import BRIEF, JOBS, KEYED

_LOOK_SOON_S = 0.01
_BEFORE_CRASH_S = (0.01, 0.3)
_INDEXES = (".index", ".timeindex", ".txnindex")
_DELAYS_TOO_CHANCE = 0.5
_KEYED_CHANCE = 0.5
_SLOW_S = (0.5, 2.5)
_ROTTEN_PLACES = 3
_PARTITION_DIRECTORY = re.compile(r"(.+)-(\d+)(\.[0-9a-f]{32}-stray)?")


class DiskFaults:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = scene.chance
        self._world = scene.world
        self._number = 0

    def kinds(self) -> list[tuple[Fault, int]]:
        return [
            (self._disk_errors, 2),
            (self._disk_full, 2),
            (self._read_errors, 2),
            (self._partition_cannot_be_opened, 4),
            (self._bits_rot, 2),
            (self._copy_and_crash, 3),
            (self._lose_indexes, 3),
        ]

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        """The faults that occur only in plots that ask for them."""
        return [(self._jobs_rot, 10), (self._slow_disk, 10)]

    def _slow_disk(self) -> Undo:
        """Threads that read or sync take longer than a lock lasts, and little is in the page cache."""
        node = self._scene.victim()
        node.disk.slow_s = self._chance.uniform(*_SLOW_S)
        self._scene.note(f"the disk of {node.host} takes {node.disk.slow_s:.1f} s")

        def mend() -> None:
            node.disk.slow_s = 0.0

        return mend

    def _disk_errors(self) -> Undo | None:
        node, chance = self._scene.unreliable(), self._chance.choice((0.02, 0.3, 1.0))
        if node is None:
            return None
        self._scene.note(f"the disk of {node.host} fails, {chance:.0%} of the time")
        node.disk_failed = True
        numbers = self._numbers()

        def fail(operation: str, path: str) -> None:
            if operation != "read" and numbers.random() < chance:
                raise OSError(errno.EIO, "the device has failed", path)

        return self._set(node, fail)

    def _disk_full(self) -> Undo | None:
        node = self._scene.unreliable()
        if node is None:
            return None
        self._scene.note(f"the disk of {node.host} is full")
        node.disk_failed = True

        def refuse(operation: str, path: str) -> None:
            if operation in ("append", "create", "mkdir"):
                raise OSError(errno.ENOSPC, "no space left on device", path)

        return self._set(node, refuse)

    def _read_errors(self) -> Undo:
        """Reading fails for a while, and nothing is lost. Logs that could not be opened are opened later."""
        node, chance = self._scene.victim(), self._chance.choice((0.02, 0.3, 1.0))
        self._scene.note(f"the disk of {node.host} cannot be read, {chance:.0%} of the time")
        numbers = self._numbers()

        def fail(operation: str, path: str) -> None:
            if operation == "read" and numbers.random() < chance:
                raise OSError(errno.EIO, "the device cannot be read", path)

        return self._set(node, fail)

    def _numbers(self) -> Random:
        self._number += 1
        return self._world.chance(f"disk-errors/{self._number}")

    def _set(self, node: SimNode, fault: Callable[[str, str], None]) -> Undo:
        node.disk.fault = fault
        return lambda: self._clear(node, fault)

    def _clear(self, node: SimNode, fault: Callable[[str, str], None]) -> None:
        if node.disk.fault is fault:
            node.disk.fault = None

    # -- one partition -----------------------------------------------------------------------------------

    def _partition_cannot_be_opened(self) -> Undo | None:
        """A broker starts without one of its partitions. It can read it after a while, or stops in order, and
        can read it the next time."""
        node = self._scene.mortal()
        directories = [] if node is None else node.disk.directories(DATA_DIR)
        if node is None or not directories or self._scene.robbed is not None:
            return None
        favourite = f"{DATA_DIR}/{BRIEF[0]}-{BRIEF[1]}"  # its log begins in the middle of a segment
        choices = [favourite] if favourite in directories and self._chance.random() < 0.7 else directories
        directory = self._chance.choice(choices)

        def fail(operation: str, path: str) -> None:
            if operation == "read" and path.startswith(directory):
                raise OSError(errno.EIO, "the device cannot be read", path)

        over, serves_on = False, self._world.chance(f"openings/{self._world.now}").random() < 0.5

        def begin() -> None:
            if not over:
                self._scene.note(f"{directory} of {node.host} cannot be read")
                self._set(node, fail)
            node.start()

        def end() -> None:
            nonlocal over
            over = True
            if serves_on:
                self._clear(node, fail)
            else:
                self._stop_then(node, lambda: self._clear(node, fail))

        if self._chance.random() < 0.5:
            node.kill()
            begin()
        else:
            self._stop_then(node, begin)
        return end

    def _stop_then(self, node: SimNode, action: Undo) -> None:
        """Stop a broker in order, as soon as it serves and may; do something before it is started again."""
        if node.running and not (node.ready and self._scene.may_end(node)):
            self._world.after(_LOOK_SOON_S, self._stop_then, node, action)
            return
        node.stop()
        self._when_ended(node, node.starts, action)

    def _when_ended(self, node: SimNode, starts: int, action: Undo) -> None:
        if not node.running:
            action()
        elif node.starts != starts:  # it was restarted meanwhile
            self._stop_then(node, action)
        else:
            self._world.after(_LOOK_SOON_S, self._when_ended, node, starts, action)

    # -- index files -----------------------------------------------------------------------------------

    def _lose_indexes(self) -> None:
        """A broker ends, and is started without index files: removed, or left out of a backup."""
        node = self._scene.mortal()
        if node is None:
            return
        kinds = self._chance.choice((_INDEXES, *((kind,) for kind in _INDEXES)))

        def lose() -> None:
            for directory in node.disk.directories(DATA_DIR):
                node.disk.lose_files(directory, kinds)
            if self._chance.random() < _DELAYS_TOO_CHANCE:
                node.delay_indexes.lose()
            self._scene.note(f"{node.host} has lost its files {', '.join(kinds)}")
            node.start()

        if self._chance.random() < 0.5:
            node.kill()
            lose()
        else:
            self._stop_then(node, lose)

    # -- a new disk --------------------------------------------------------------------------------------

    def _bits_rot(self) -> Undo | None:
        """Files return other bytes than were written, until the disk is replaced.

        Where one in-sync replica is enough, this one may become the only one meanwhile. docs/guarantees.md
        promises nothing then.
        """
        node = None if self._scene.one_is_enough else self._replaceable()
        keyed = f"{DATA_DIR}/{KEYED[0]}-{KEYED[1]}"  # it is read, unpacked and written anew
        favourite = keyed if self._chance.random() < _KEYED_CHANCE else None
        rotten = None if node is None else node.disk.rot(DATA_DIR, favourite)
        if node is None or rotten is None:
            return None
        self._note_rotten(node, *rotten)
        return lambda: self._replace(node, lambda: None)

    def _jobs_rot(self) -> Undo | None:
        """Like `_bits_rot`, in the topic that the share group reads, while the broker is stopped. The broker
        checks logs that it has not written since its start."""
        at, node = self._chance.choice(JOBS), self._replaceable()
        if node is None:
            return None
        is_over = False

        def rot_and_start() -> None:
            # Another disk may have been damaged while it stopped, and the time for faults may be over.
            is_only = self._scene.rotten is None and not is_over
            for _ in range(_ROTTEN_PLACES if is_only else 0):
                rotten = node.disk.rot_segment(f"{DATA_DIR}/{at[0]}-{at[1]}")
                if rotten is not None:
                    self._note_rotten(node, *rotten)
            node.start()

        def undo() -> None:
            nonlocal is_over
            is_over = True
            if self._scene.rotten is node:
                self._replace(node, lambda: None)

        self._stop_then(node, rot_and_start)
        return undo

    def _note_rotten(self, node: SimNode, path: str, offsets: Sequence[int]) -> None:
        self._scene.note(f"bits of {path} of {node.host} rot, offsets {list(offsets)}")
        self._scene.rotten = node
        directory = _PARTITION_DIRECTORY.fullmatch(path.removeprefix(f"{DATA_DIR}/").split("/")[0])
        if directory is not None:  # else it is being deleted
            at = directory[1], int(directory[2])
            self._scene.damaged.update((at, offset) for offset in offsets)

    def _copy_and_crash(self) -> None:
        """Let a broker copy the logs of the others, and kill it as soon as it has the compacted topic."""
        node = self._replaceable()
        if node is not None:
            self._replace(node, lambda: self._crash_when_copied(node))

    def _replaceable(self) -> SimNode | None:
        scene = self._scene
        if len(scene.nodes) < 2 or scene.rotten is not None or not scene.in_sync():
            return None
        return scene.robbable()

    def _replace(self, node: SimNode, then: Undo) -> None:
        """Replace the disk by an empty one, while the broker is stopped, and only if others have its data."""
        if node.powerless or self._scene.is_alone(node):
            self._world.after(LOOK_S, self._replace, node, then)
        else:
            self._stop_then(node, lambda: self._erase(node, then))

    def _erase(self, node: SimNode, then: Undo) -> None:
        scene = self._scene
        if scene.is_in_sync(node) or scene.is_last(node):
            self._world.after(LOOK_S, self._replace, node, then)
            return
        scene.note(f"{node.host} gets an empty disk")
        scene.robbed, scene.rotten = node, None
        node.replace_disk()
        then()

    def _crash_when_copied(self, node: SimNode) -> None:
        scene = self._scene
        if scene.healed or scene.robbed is not node:
            return
        state = scene.store.image().partition(*KEYED)
        if node.ready and state is not None and node.node_id in state.isr:
            self._world.after(self._chance.uniform(*_BEFORE_CRASH_S), self._crash, node)
        else:
            self._world.after(_LOOK_SOON_S, self._crash_when_copied, node)

    def _crash(self, node: SimNode) -> None:
        if not self._scene.healed and not node.powerless:
            node.kill()
            self._scene.later(self._chance.uniform(*SHORT_S), node.start)
