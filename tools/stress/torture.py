"""Kill runs at random moments, start them again on other numbers of ranks, and compare with runs that nobody disturbed.

    python -m tools.stress.torture [--kills 200] [--seed 0] [--dir DIR] [--asynchronous]

Five parts run side by side on the cyclic MDP: ES, ESAC, ESAC with SAC phases beside the evaluation, by learner_lag = 2 and by the
virtual clock, and PDERL; all of ESAC play members' episodes again, two adopt by a test.
Each is killed (SIGKILL of one random rank, or of everything at once) while it starts, while it publishes a file, in a generation
with a phase of the learner, or at any other moment, and started again on 1 to 3 ranks until it is finished; then it begins again
in another directory, until the kills are used up. After every kill the published rows must equal the undisturbed run's; at the
end all rows, theta, the state's hash and the best policy must.

--asynchronous: AES-RL in place of these, in virtual order and in order of arrival. There no two runs are equal: rows that were
once published must stay, and a run that is made again from the record (aes_rl.replay) must equal the killed one.

Cost: 2 to 5 s a kill on 2 cores (200 kills: 7 to 17 minutes), 1 GB of memory. Needs mpirun and Linux. Prints what was hit;
exits with 1 if anything was lost, differs, or was not down 10 s after a kill.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from esac_mpi.config.exact import whole
from esac_mpi.host.paths import given
from esac_mpi.record import Run, read
from tools.parsing import parser
from tools.stress.moments import kill, moment, wait_for_moment
from tools.stress.runs import (
    ASYNCHRONOUS,
    GENERATIONS,
    PARTS,
    Broken,
    Part,
    compare,
    finish,
    launch,
    longer,
    rows,
    science,
)


def torture(part: Part, kills: int) -> str:
    """Kill the part that often, to the end of its runs; return what went wrong, empty if nothing."""
    try:
        straight = part.place / "straight"
        finish(launch(part, straight, 1))
        part.straight = science(straight)
        while sum(part.hits.values()) < kills or not part.runs:
            part.runs += 1
            one_run(part, part.place / f"run {part.runs}", kills)
    except Exception as error:
        output = (part.place / "output.txt").read_text(errors="replace")[-3000:]
        return f"{part.name}, run {part.runs}, start {part.starts} in {part.place}: {error!r}\n{output}"
    return ""


def one_run(part: Part, path: Path, kills: int) -> None:
    """Kill and restart one run until it is finished. Raises Broken."""
    committed = (0, 0)  # rows, and generation of the checkpoint
    idle = 0  # kills in a row without a newer checkpoint
    expected = {} if part.recorded else part.straight
    while True:
        job = launch(part, path, part.choose.randint(1, 3))
        more = sum(part.hits.values()) < kills
        if not more or not wait_for_moment(part, job, progress=idle >= 3):
            finish(job)
            break
        victim = kill(part, job)
        part.hits[moment(part, job), victim] += 1
        found = rows(path)
        if part.recorded:
            expected = longer(found, expected)
        else:
            compare(found, expected, whole=False)
        checkpoint = read(path / "metrics.h5")[1]["checkpoint_generation"] if found else 0
        now = (len(found.get("metrics/generation", ())), checkpoint)
        if now[1] < committed[1] or now[0] < committed[1]:
            raise Broken(f"rows lost: {committed} rows and checkpoint before, {now} after a kill")
        idle = idle + 1 if now[1] == committed[1] else 0
        committed = now
    if part.recorded:
        compare(expected, science(path), whole=False)
        again = path.with_name(f"{path.name} again")
        finish(launch(part, again, part.choose.randint(1, 3), f"--aes_rl.replay={path}"))
        expected = science(again)
    compare(science(path), expected, whole=True)
    if (status := Run.open(path).state) != "complete":
        raise Broken(f"finished, but the status is {status}")


def table(parts: list[Part]) -> str:
    """Return how often which moment of which victim was hit."""
    victims = ("rank 0", "another rank", "everything")
    hits: Counter[tuple[str, str]] = sum((part.hits for part in parts), Counter())
    lines = [f"{'hit by kill -9':32}" + "".join(f"{victim:>14}" for victim in victims)]
    for what in sorted({what for what, _ in hits}):
        lines.append(f"{what:32}" + "".join(f"{hits[what, victim]:14}" for victim in victims))
    return "\n".join(lines)


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument("--kills", type=whole, default=200, help="kills, over all parts")
    line.add_argument(
        "--seed", type=whole, default=0, help="of the moments, victims and numbers of ranks"
    )
    line.add_argument("--dir", type=given, help="keep the runs here, in an empty directory")
    line.add_argument(
        "--asynchronous",
        action="store_true",
        help="AES-RL, in both orders, in place of the five parts",
    )
    return line


def main(argv: list[str]) -> int:
    """Run all parts; return 1 if a promise was not kept."""
    options = command_line().parse_args(argv)
    start, chosen = time.monotonic(), ASYNCHRONOUS if options.asynchronous else PARTS
    with tempfile.TemporaryDirectory() as temporary:
        place = (options.dir or Path(temporary)).resolve()
        parts = []
        for number, (name, arguments) in enumerate(chosen.items()):
            (place / name).mkdir(parents=True)
            parts.append(
                Part(name, arguments, place / name, random.Random(f"{options.seed} {number}"))
            )
        share = options.kills // (
            len(chosen) + (not options.asynchronous)
        )  # ES has two: it starts fastest, without torch
        shares = [options.kills - share * (len(chosen) - 1), *[share] * (len(chosen) - 1)]
        with ThreadPoolExecutor() as pool:
            problems = list(filter(None, pool.map(torture, parts, shares)))
    print(table(parts))
    kills, runs, starts = (
        sum(sum(p.hits.values()) for p in parts),
        sum(p.runs for p in parts),
        sum(p.starts for p in parts),
    )
    print(
        f"{kills} kills in {runs} runs of {GENERATIONS} generations, {starts} starts, {time.monotonic() - start:.0f} s"
    )
    print(f"slowest end of all processes after a kill: {max(part.slowest for part in parts):.2f} s")
    print(
        "\n".join(problems)
        or "0 committed rows lost; all rows, theta, state_sha256 and policies equal to the undisturbed runs"
    )
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
