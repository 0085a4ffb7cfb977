"""A replay's rows on the learner's device, from which a GPU takes its batches; the replay itself stays what checkpoints store.

tests/learners/test_chunks.py holds it on a CPU, tools/gpu_check on a GPU.
"""

import torch

from esac_mpi.learners.replay import Replay


class Mirror:
    """The rows of `replay.ring`, float32 [capacity + reserve, width], at the same places in a device's memory."""

    def __init__(self, replay: Replay, device: torch.device) -> None:
        self._replay, self._device = replay, device
        self._make()

    def _make(self) -> None:
        self.rows = torch.zeros(0)  # first lets go of what there was
        self.rows = torch.zeros(self._replay.ring.shape, device=self._device)
        self._until = 0  # transitions that have come so far, of those ever added
        self._rewritten = self._replay.rewritten

    def follow(self) -> bool:
        """Bring over what the replay has and this lacks; return whether all of it lies elsewhere from now on."""
        replay, ring, moved = self._replay, self._replay.ring, False
        if self._rewritten != replay.rewritten:
            moved = self.rows.shape != ring.shape
            self._until, self._rewritten = 0, replay.rewritten
            if moved:
                self._make()
        i = max(self._until, replay.added - len(ring))
        while i < replay.added:
            first = i % len(ring)
            last = min(first + replay.added - i, len(ring))
            self.rows[first:last].copy_(torch.from_numpy(ring[first:last]))
            i += last - first
        self._until = replay.added
        return moved
