"""The report of --check: a line a subject, each ending in ok or in what to do."""

from dataclasses import dataclass

from esac_mpi.host.errors import WRONG_USAGE


@dataclass(frozen=True)
class Line:
    """What was found about a subject, what to do about it, and whether no run is possible."""

    subject: str
    found: str
    remedy: str = ""
    fatal: bool = False
    code: int = WRONG_USAGE  # what such a run ends with, where fatal


def block(lines: list[Line]) -> list[str]:
    """Align the lines of the report."""
    left = max(len(line.subject) for line in lines)
    right = min(max(len(line.found) for line in lines), 100)
    return [f"  {line.subject:<{left}}  {line.found:<{right}}  {mark(line)}" for line in lines]


def mark(line: Line) -> str:
    """End a line: ok, or what to do."""
    if not line.remedy:
        return "ok"
    remedy = line.remedy.replace("\n", f"\n{' ' * 8}")
    return f"{'WRONG' if line.fatal else 'NOTE'}: {remedy}"


def verdict(lines: list[Line]) -> str:
    """Sum up the report in its last line."""
    remarks = [line for line in lines if line.remedy]
    wrong = [line.subject for line in remarks if line.fatal]
    if wrong:
        must = f"{len(wrong)} thing(s) must be put right before a run can start"
        return f"{must}: {', '.join(wrong)}"
    return f"ready to run; {len(remarks)} note(s)" if remarks else "ready to run"


def format_ranges(numbers: list[int]) -> str:
    """Format ascending numbers as ranges: 0-3,6."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
