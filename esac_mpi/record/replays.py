"""The replay on disk: closed segments, published once, and the open rest in the checkpoint."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from esac_mpi.host.errors import Unreadable
from esac_mpi.operators import memories
from esac_mpi.record.checkpoints import REPLAY, Checkpoint, Segment
from esac_mpi.record.files import Arrays, Image, digest, image, read

SEGMENT = 10_000  # transitions of a segment


class Replay(memories.Replay, Protocol):
    """A ring of transitions that can be put back."""

    def restore(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        """Put transitions back at their places; `added` becomes start + their number."""


class Stored(NamedTuple):
    """What a checkpoint says of a replay."""

    segments: dict[int, Segment]  # that the ring still needs, by index
    bounds: tuple[int, int]  # first and one past the last transition of the ring
    tail: Arrays  # the transitions after the last segment
    # digests of exactly the transitions in the ring, whenever checkpoints were made
    content: Arrays

    @property
    def manifest(self) -> str:
        """What names the segments in a checkpoint, JSON."""
        segments = [[s.index, s.start, s.sha256] for s in self.segments.values()]
        return json.dumps({"bounds": self.bounds, "segments": segments})


def store(
    replay: Replay, known: dict[int, Segment], publish: Callable[[str, Image], None]
) -> Stored:
    """Publish new closed segments; return what a checkpoint says of the replay. Raises Unsaved."""
    size, first, stop = SEGMENT, max(0, replay.added - replay.capacity), replay.added
    content: Arrays = {"replay/bounds": np.array([first, stop])}
    segments = {}
    for index in range(first // size, stop // size):
        segment = known.get(index)
        if segment is None:
            start = max(index * size, first)
            rows = replay.rows(start, (index + 1) * size)
            segment = Segment(index, start, digest(rows))
            publish(f"{REPLAY}/{segment.name}", image(rows, {"start": start}))
            known[index] = segment
        whole = first <= index * size
        sha256 = segment.sha256 if whole else digest(replay.rows(first, (index + 1) * size))
        content[f"replay/{index}"] = np.frombuffer(bytes.fromhex(sha256), np.uint8)
        segments[index] = segment
    tail = dict(replay.rows(max(first, stop // size * size), stop))
    return Stored(segments, (first, stop), tail, content)


def fill(replay: Replay, run: Path, saved: Checkpoint, anew: bool = False) -> None:
    """Put a checkpoint's transitions into a replay, oldest first. Raises Unreadable.

    anew: into the empty one of another run, the newest that it has room for, numbered from 0.
    """
    first, stop = saved.replay_bounds
    oldest = max(first, stop - replay.capacity)
    for start, rows in _parts(run, saved):
        lost = max(0, oldest - start)
        if lost <= len(next(iter(rows.values()))):  # none at all is an empty replay
            number = start + lost - (oldest if anew else 0)
            replay.restore(number, {name: column[lost:] for name, column in rows.items()})


def _parts(run: Path, saved: Checkpoint) -> Iterator[tuple[int, Arrays]]:
    """Yield a checkpoint's transitions, oldest first: first number, rows. Raises Unreadable."""
    for segment in saved.segments:
        path = run / REPLAY / segment.name
        rows, _ = read(path)
        if digest(rows) != segment.sha256:
            raise Unreadable(f"{path}: not the file that the checkpoint names")
        yield segment.start, rows
    first, stop = saved.replay_bounds
    if saved.replay_tail:
        yield max(first, stop // SEGMENT * SEGMENT), saved.replay_tail
