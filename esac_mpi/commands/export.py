"""Export a policy for other software, or a run's history as CSV or TensorBoard curves.

    esac-mpi export RUN|POLICY --format torchscript|onnx|npz [--out FILE]
    esac-mpi export RUN... --format csv [--out FILE]
    esac-mpi export RUN... --format tensorboard [--follow] [--out FOLDER]

Examples:
    esac-mpi export runs/Hopper-v5-esac-seed0 --format onnx         # writes policy.onnx there
    esac-mpi export runs/Hopper-v5-esac-seed0 --format csv          # writes metrics.csv there
    esac-mpi export runs/* --format tensorboard --follow            # then tensorboard --logdir runs

torchscript   float32 [o] or [m, o] -> float32 [a] or [m, a] in the task's bounds; needs torch
onnx          "observation" float32 [m, o] -> "action" float32 [m, a]; needs torch, onnx, onnxscript
npz           the arrays; docs/how-to/export.md has the formula; needs numpy
csv           a row a generation; columns as in docs/reference/hdf5.md; of fitness and evaluations
              mean, min and max. FILE takes one run
tensorboard   curves against --step: eval/mean_reward, rollout/ep_rew_mean (of 50 episodes),
              rollout/ep_len_mean, time/fps, train/... as stable-baselines3 calls them, others by
              their HDF5 names. FOLDER gets a folder for each run. --follow adds new rows while runs
              go on, until all have ended or Ctrl-C

A policy's file contains its action bounds and normaliser. It is read back, and asked for the
actions of 1,000 observations of a size from 0.1 to 10. If one differs by more than 1e-4 half ranges
of the action, and by more than ten times float32's rounding, the file is removed and the command
fails.
Cost: 1 s for npz, csv and tensorboard; 5 to 15 s for the others, mostly imports. Exit codes: 0; 1 a
file acts differently; 2 wrong usage, no policy, not writable; 65 unreadable run; 130 after Ctrl-C.
"""

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from esac_mpi import Policy
from esac_mpi.analysis import command, histories
from esac_mpi.analysis.followed import Followed
from esac_mpi.analysis.messages import Unusable
from esac_mpi.host.errors import FAILED
from esac_mpi.host.paths import has_suffix, read_path, whole_file
from esac_mpi.policies.formats import FORMATS, OBSERVATIONS, allowed, difference


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    add = line.add_argument
    add("runs", nargs="+", type=read_path, metavar="RUN|POLICY", help="run directory, or policy.h5")
    text = "what to write, see above"
    add("--format", choices=(*FORMATS, *histories.FORMATS), required=True, help=text)
    text = "of tensorboard: add new rows until the runs end, or until Ctrl-C"
    add("--follow", action="store_true", help=text)
    text = "of --follow: time between looks at the files (5)"
    add("--every", type=command.pause, default=5.0, metavar="SECONDS", help=text)
    text = "of tensorboard: the horizontal axis; default: env_steps"
    add("--step", choices=histories.STEPS, default="env_steps", help=text)
    text = "default: policy.pt, .onnx or .npz beside policy.h5; a history: in the run"
    add("--out", type=command.out_path, help=text)


def check(options: argparse.Namespace) -> None:
    """Raise Unusable for options that are not read, or several runs where one is taken."""
    form, history = options.format, options.format in histories.FORMATS
    if form != "tensorboard":
        command.refuse_unread(options, f"--format {form}", ("step", "follow", "every"))
    elif not options.follow:
        command.refuse_unread(options, "without --follow, --format tensorboard", ["every"])
    if options.runs[1:] and (not history or (form == "csv" and options.out)):
        raise Unusable(f"--format {form} takes one run{' with --out' if history else ''}")


def distinct_paths(paths: list[Path], out: Path | None) -> list[Path]:
    """Return each run's path once. Raises Unusable where two would write one file."""
    found = command.distinct(paths)
    if out and len({Path(os.path.realpath(path)).name for path in found}) < len(found):
        raise Unusable(f"--out {out}: runs of one name would share a folder; leave it out")
    return found


def write(options: argparse.Namespace) -> Iterator[object]:
    """Write a policy, or runs' histories; yield the files. Raises Unusable."""
    check(options)
    if options.format in FORMATS:
        yield from write_policy(options)
        return
    for run in command.opened(distinct_paths(options.runs, options.out)):
        if options.format == "csv":
            out = options.out or run.path / "metrics.csv"
            yield from command.write_text(histories.as_csv(run), out)
        else:
            yield histories.write_curves(run, options.out, options.step)


def write_policy(options: argparse.Namespace) -> Iterator[object]:
    """Write a policy; yield its file and how far it acts from it. Raises Unusable."""
    write, suffix = FORMATS[options.format]
    warnings.simplefilter("ignore")  # torch's, about TorchScript's age
    policy = Policy.load(options.runs[0])
    out = options.out or policy.path.with_suffix(suffix)
    if out.is_dir():
        raise Unusable(f"{out}: a directory; name the file in it")
    out = out if out.suffix else out.with_suffix(suffix)  # some libraries add it, others do not
    if os.path.realpath(out) == os.path.realpath(policy.path):
        raise Unusable(f"{out}: the policy itself, which stays; choose another --out")
    if has_suffix(out, *{".h5", *(other for _, other in FORMATS.values())} - {suffix}):
        raise Unusable(f"--out {out}: the name of another format; this one's is {suffix}")
    with whole_file(out) as file:
        found, most = difference(policy, write(policy, file)), allowed(policy)
        limit = (
            f"{found:.1e} half ranges of the action on {OBSERVATIONS:,} observations "
            f"(allowed: {most:.0e}, float32)"
        )
        if not found <= most:
            told = f"the new {out} was removed: it acts otherwise, by {limit}"
            raise Unusable(told, FAILED)
    yield out
    yield f"largest difference {limit}"


def follow(options: argparse.Namespace) -> int:
    """Write curves while runs go on; return the exit code. Raises Unusable."""
    check(options)
    runs = Followed(distinct_paths(options.runs, options.out))
    files = histories.follow(runs, options.out, options.step, max(0.1, options.every))
    try:
        code = command.print_all(files)
    except KeyboardInterrupt:
        return 130
    return runs.code or code


def main(options: argparse.Namespace) -> int | Iterator[object]:
    """Write a policy, or runs' histories."""
    return follow(options) if options.follow else write(options)
