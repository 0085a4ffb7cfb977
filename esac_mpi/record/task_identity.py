"""Whether a run goes on with its task: same source, wrappers, model, observations, rewards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esac_mpi.host.errors import Refused

WORDS = {  # attribute of a run (provenance.gather): what it is
    "task_source": "its source",
    "task_wrappers": "its wrappers",
    "task_model": "its MuJoCo model as compiled",
    "task_probe": "what it answers in its first steps",
}
# attributes without which a model and a probe have other bits anyway
MACHINE = ("cpu", "versions", "python")


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the WORDS of what changed, with its parts; not what has to differ here."""
    same_machine = all(was.get(name) == now.get(name) for name in MACHINE)
    found = []
    for name, words in WORDS.items():
        old, new = was.get(name), now.get(name)
        always = name in ("task_source", "task_wrappers")
        comparable = always or (same_machine and old and new)
        if old is not None and new is not None and old != new and comparable:
            found.append(f"{words}{_which(name, old, new)}")
    return found


def _which(name: str, old: str, new: str) -> str:
    if name == "task_wrappers":
        return f" ({old or 'none'} -> {new or 'none'})"
    if name == "task_model":
        return ""
    apart = set(old.split(", ")) ^ set(new.split(", "))  # `part digest`
    return f" ({', '.join(sorted({entry.rpartition(' ')[0] for entry in apart if entry}))})"


def refuse(path: Path, changed: list[str]) -> None:
    """Raise Refused if the task has changed."""
    if changed:
        raise Refused(
            f"{path} holds a run of another task; changed: {'; '.join(changed)}.\n"
            "Choose --task.changed warn (goes on; the best policy begins anew), --fresh (moves it "
            "aside) or another --run-dir"
        )


def list_changes(was: Mapping[str, Any], generation: int, changed: list[str]) -> str:
    """Write task_changes: what changed after which generation, at all starts so far."""
    entries = [str(was.get("task_changes", ""))]
    if changed:
        entries.append(f"after generation {generation}: {', '.join(changed)}")
    return "; ".join(filter(None, entries))
