"""A run directory as rank 0 holds it: run.lock taken, touched, and checked before every file."""

import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.host.run_directory import LOCK
from esac_mpi.record import lock
from esac_mpi.record.errors import Refused, Unsaved
from esac_mpi.record.files import Image, publish, store


class Held:
    """A directory held by a run from take() to close(); or by a lock of another name.

    token: what run.lock holds while this run has it. Nobody may open that file in this process: to
    close it would drop the lock. written: what was published so far [bytes].
    """

    def __init__(self, path: Path, name: str = LOCK) -> None:
        self.path, self._name = path, name
        self.token = (
            f"{socket.gethostname()} {os.getpid()} {datetime.now(UTC).isoformat()}\n".encode()
        )
        self.written = 0
        self._lock = -1
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self, create: bool) -> None:
        """Take run.lock, unless it is held already. Raises Refused, naming the holder; OSError."""
        if self._lock < 0:
            self._lock = lock.take(self.path, create, self._name)

    def claim(self) -> bool:
        """Make the directory, lock and sign it; return whether it was not held before."""
        before = self._lock >= 0
        self.path.mkdir(parents=True, exist_ok=True)
        self.take(create=True)
        os.pwrite(self._lock, self.token, 0)
        os.ftruncate(self._lock, len(self.token))
        return not before

    def let_go(self) -> None:
        """Release the lock; it may be taken again."""
        if self._lock >= 0:
            lock.release(self._lock, self.token)
            self._lock = -1

    def close(self) -> None:
        """Release the lock for good; return when nothing touches it any more."""
        self._closed.set()
        if self._beating is not None:
            self._beating.join()
        self.let_go()

    def beat(self) -> None:
        """Touch run.lock: the sign of life where the file system has no locks."""
        with suppress(OSError):
            os.utime(self._lock)

    def keep_beating(self) -> None:
        """Touch run.lock beside the work, until close()."""
        self._beating = threading.Thread(
            target=self._beat_until_closed, name="heartbeat", daemon=True
        )
        self._beating.start()

    def _beat_until_closed(self) -> None:
        while not self._closed.wait(lock.BEAT):
            self.beat()

    def guard(self) -> None:
        """Touch run.lock. Raises Refused if another run took it; Unsaved."""
        try:
            ours = os.pread(self._lock, 1000, 0) == self.token
            with suppress(FileNotFoundError):
                ours &= os.path.samestat(os.stat(self.path / self._name), os.fstat(self._lock))
        except OSError as error:
            raise Unsaved(f"{self.path / self._name}: {error.strerror}") from error
        if not ours:
            raise Refused(
                f"{self.path}: another run has taken this directory; this one stops without writing"
            )
        self.beat()

    def publish(
        self,
        name: str,
        arrays: Mapping[str, np.ndarray],
        attributes: Mapping[str, Any],
        previous: bool = False,
    ) -> None:
        """Replace an HDF5 file; previous=True keeps *_prev. Raises Unsaved, Refused."""
        self.guard()
        self.written += publish(self.path / name, arrays, attributes, previous)

    def store(self, name: str, made: Image) -> None:
        """Replace a file by an image. Raises Unsaved, Refused."""
        self.guard()
        self.written += store(self.path / name, made)

    def store_segment(self, name: str, made: Image) -> None:
        """Publish a segment in its folder. Raises Unsaved, Refused."""
        folder = (self.path / name).parent
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise Unsaved(f"{folder}: {error.strerror}") from error
        self.store(name, made)

    def delete_segments(self, folder: str, keep: set[str]) -> None:
        """Delete the segments of a folder but for those to keep, named from the run directory."""
        there: list[Path] = []
        with suppress(OSError):  # tried again at the next checkpoint, as what cannot be deleted
            there += (self.path / folder).glob("segment-*.h5")
        for file in there:
            if f"{folder}/{file.name}" not in keep:
                with suppress(OSError):
                    file.unlink()
