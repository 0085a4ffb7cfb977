"""Say where runs stand, a JSON object or a table's row each, or what differs between runs.

    esac-mpi summary RUN [RUN ...] [--json | --resume]
    esac-mpi summary RUN RUN [RUN ...] --compare
    esac-mpi summary runs/* --status failed dead requeue --task 'dm_control/*' --sort need

Reads files only: no MPI, no torch, no simulator, safe on a login node and while a run is going on.
Cost: 0.05 s a run.

status                dead = "running" in status.json, but its process has ended
generation            generations in the published history, which is at most 30 s behind;
                      status.json is written at checkpoints
best_return           return of the best policy, on start states that did not choose it; of older
                      versions the best evaluation's
final_return          mean return of the last generation of a complete run, of the better policy, or
                      ERL's champion; null before
last_evaluation       mean return of each policy (theta_es, sac, td3 ...) in the last evaluation,
                      and its generation
gradient_updates, member_updates  of the learner; of a population's members (CEM-RL, AES-RL,
                                  distillation)
theta_sha256, state_sha256      of the newest checkpoint, made in generation `checkpoint_generation`
parallel_efficiency   mean over generations of sum(busy seconds of the ranks) / (ranks * wall
                      seconds of the evaluation); wall is rank 0's, or the busiest rank's if that is
                      longer
env_steps_per_second  environment steps of all kinds / wall seconds, over the whole run
time_percent          where rank 0's time went, in percent of the wall time;
                      docs/reference/hdf5.md has the parts (timing/seconds_*)
resume                the command that continues an unfinished run from the current directory; null
                      where there is none

The table has of these what fits a line; its return is that of the last evaluation, of the better
policy; speed, idle share of the ranks' time and time left are of the last 20 generations; row says
how old the newest is. It is sorted by task, algorithm and seed, or by --sort: need (what needs you
first: failed, dead, requeue, running, pruned, complete; of equals, what has published nothing for
longest), return, left (the time), name; --json as given, or by --sort. --status and --task choose.
--resume prints the commands alone, one a line, of the runs to continue.

--compare says what differs between the first run and each other one: configuration, task, machine
and versions; and where their bits part: those of metrics/, which promise not to depend on ranks,
restarts or the machine's speed; nan equals nan. Rows are compared as far as both runs have them;
the whole states too, where both have a checkpoint of the same generation. A task's model and what
it answers in its first steps (task_model, task_probe) have other digests on other machines, too.
Cost: 0.1 s and more.
Returns 2 if a directory is not a run, 65 if it cannot be read; of --compare 1 if bits part, 2
without a generation in both.
"""

import argparse
from collections import Counter

from esac_mpi.analysis import views
from esac_mpi.analysis.choice import add_choice, choice_of
from esac_mpi.analysis.command import add_runs, parser, readable
from esac_mpi.analysis.comparison import compared
from esac_mpi.analysis.summaries import resume_command, summary
from esac_mpi.analysis.tables import rendered
from esac_mpi.host.streams import as_json
from esac_mpi.record import RunFiles


def footer(chosen: list[RunFiles], runs: list[RunFiles], unread: int) -> str:
    """Count the runs by status; of a single one, say where its time went and how it goes on."""
    if len(runs) == len(chosen) == 1:
        about = summary(runs[0])
        parts = [f"{part} {of:.0f} %" for part, of in about["time_percent"].items() if of >= 0.5]
        time = ", ".join(parts) or "nothing published yet"
        return f"time: {time}\nresume: {about['resume'] or 'nothing to resume'}"
    counts = sorted(Counter(run.state for run in runs).items())
    text = f"{len(runs)} run{'s' if len(runs) > 1 else ''}: "
    text += ", ".join(f"{number} {status}" for status, number in counts)
    if len(chosen) < len(runs):
        text += f"; {len(chosen)} chosen"
    return text + (f"; {unread} could not be read" if unread else "")


def compare(runs: list[RunFiles]) -> int:
    """Print how each run differs from the first; return 1 if bits part, 2 without rows in both."""
    codes = []
    for other in runs[1:]:
        text, part = compared(runs[0], other)
        print(text)
        codes.append(int(part) if min(runs[0].generation, other.generation) else 2)
    return max(codes)


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    add_choice(line, "task")
    form = line.add_mutually_exclusive_group()
    text = "one JSON object a line, in the order given"
    form.add_argument("--json", action="store_true", help=text)
    text = "only the commands that continue unfinished runs"
    form.add_argument("--resume", action="store_true", help=text)
    text = "what differs between the first run and each other one"
    form.add_argument("--compare", action="store_true", help=text)
    return line


def main(argv: list[str]) -> int:
    """Print the summaries, or the comparison; return the exit code."""
    line = command_line()
    options = line.parse_args(argv)
    if options.compare and len(options.runs) < 2:
        line.error("--compare needs two runs or more")
    runs, code = readable(options.runs)
    if options.compare:
        return code or compare(list(map(runs.__getitem__, options.runs)))
    paths = choice_of(options, "task").of(runs)
    if options.json and not options.sort:
        paths = [path for path in runs if path in paths]
    chosen = [runs[path] for path in paths]
    if options.json:
        for run in chosen:
            print(as_json(summary(run)))
    elif options.resume:
        for run in chosen:
            if command := resume_command(run):
                print(command)
    elif runs:
        unread = len({*options.runs}) - len(runs)
        print(rendered([views.row(run) for run in chosen], "text"))
        print(footer(chosen, list(runs.values()), unread))
    return code
