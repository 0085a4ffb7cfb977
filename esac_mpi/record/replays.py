"""The replay on disk: closed segments of `size` transitions each, published once, and the open rest in the checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esac_mpi.record.checkpoints import REPLAY, Checkpoint, Replay, Segment, read_segment
from esac_mpi.record.files import Arrays, Image, digest, image


class Stored(NamedTuple):
    """What a checkpoint says of a replay."""

    segments: dict[int, Segment]  # that the ring still needs, by index
    bounds: tuple[int, int]  # first and one past the last transition of the ring
    tail: Arrays  # the transitions after the last segment
    content: Arrays  # digests of exactly the transitions in the ring, whenever checkpoints were made

    @property
    def manifest(self) -> str:
        """What names the segments in a checkpoint, JSON."""
        segments = [[s.index, s.start, s.sha256] for s in self.segments.values()]
        return json.dumps({"bounds": self.bounds, "segments": segments})


def store(replay: Replay, size: int, known: dict[int, Segment], publish: Callable[[str, Image], None]) -> Stored:
    """Publish the segments that are closed but not known; return what a checkpoint says of the replay. Raises Unsaved."""
    first, stop = max(0, replay.added - replay.capacity), replay.added
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
    return Stored(segments, (first, stop), dict(replay.rows(max(first, stop // size * size), stop)), content)


def fill(replay: Replay, size: int, run: Path, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's transitions into the replay, oldest first; it ends with them. Raises Unreadable."""
    first, stop = checkpoint.replay_bounds
    for segment in checkpoint.segments:
        lost = max(0, first - segment.start)
        rows = read_segment(run, segment)
        replay.restore(segment.start + lost, {name: column[lost:] for name, column in rows.items()})
    if checkpoint.replay_tail:
        replay.restore(max(first, stop // size * size), checkpoint.replay_tail)
