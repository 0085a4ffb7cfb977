"""status.json: the authority on how a run ended, and what it says to the next start."""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from esac_mpi.host import batch_system
from esac_mpi.host.errors import Unsaved
from esac_mpi.host.run_directory import LOCK, STATUS, regular
from esac_mpi.host.streams import as_json
from esac_mpi.record.files import replace

logger = logging.getLogger(__name__)


def read_status(path: Path, again: bool = False) -> dict[str, Any]:
    """Return status.json, empty where there is none that can be read.

    again: whether what is wrong with it was said before.
    """
    try:
        with open(path / STATUS, encoding="utf-8", opener=regular) as file:
            text = file.read()
        status = json.loads(text) if text.strip() else None
        if isinstance(status, dict) and isinstance(status.get("status", ""), str):
            return status
        problem: object = "not a run's JSON object" if text.strip() else "empty"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        problem = error
    if not again:
        logger.warning("%s: %s; going on without it", path / STATUS, problem)
    return {}


def writer(token: bytes) -> dict[str, Any]:
    """Say who writes: host and process, by what run.lock holds, and the batch job, if any."""
    host, pid = token.decode().split()[:2]
    job = batch_system.job_name(os.environ)
    return {"host": host, "pid": int(pid), **({"job": job} if job else {})}


def write_status(path: Path, entries: Mapping[str, Any]) -> None:
    """Replace status.json; remove it first where that fails: none is better than an old one."""
    text = encode(entries)
    try:
        replace(path / STATUS, [text])
    except Unsaved:
        with suppress(OSError):
            (path / STATUS).unlink()
        replace(path / STATUS, [text])


def fail_from(path: Path, token: bytes, rank: int, reason: str) -> None:
    """Say that a run has failed, from a rank that does not hold it, as rank 0 will not.

    Only where status.json says that it is running, and run.lock still holds the token: elsewhere
    the directory is another one, or another run's. Raises OSError, Unsaved.
    """
    last = read_status(path)
    if last.get("status") == "running" and (path / LOCK).read_bytes() == token:
        # rank 0 of another host may write at this moment, by a process of the same number
        whole = path / f"{STATUS}.tmp.{os.getpid()}.{rank}"
        replace(whole, [encode({**last, "status": "failed", "time": now(), "reason": reason})])
        os.replace(whole, path / STATUS)


def encode(entries: Mapping[str, Any]) -> bytes:
    """Write what status.json holds."""
    return (as_json(entries, indent=1) + "\n").encode()


def now() -> str:
    """Tell the time (UTC)."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def starts(last: Mapping[str, Any], generation: int) -> int:
    """Count the starts in a row, by the status before and the newest checkpoint's generation."""
    before, since = (
        last[name] if type(last.get(name)) is int else -1 for name in ("starts", "since")
    )
    goes_on = last.get("status") in ("running", "requeue") and generation <= since
    return max(before, 0) + 1 if goes_on else 1


def describe_death(last: Mapping[str, Any]) -> str:
    """Describe the earlier process's death without a last status; "" if there was none."""
    if last.get("status") != "running":
        return ""
    host, pid, when = (last.get(name, "unknown") for name in ("host", "pid", "time"))
    return (
        f"the run before this one ended without a word (host {host}, pid {pid}, status of {when}): "
        "killed, out of memory, its node lost, or an error that its output tells"
    )
