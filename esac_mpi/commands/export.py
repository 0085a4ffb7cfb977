"""Export a policy for other software, or a run's history as CSV or TensorBoard curves.

    esac-mpi export RUN|POLICY --format torchscript|onnx|npz [--out FILE]
    esac-mpi export RUN... --format csv|tensorboard [--follow] [--out FOLDER]

Examples:
    esac-mpi export runs/Hopper-v5-esac-seed0 --format onnx         # writes policy.onnx there
    esac-mpi export runs/Hopper-v5-esac-seed0 --format csv          # writes metrics.csv there
    esac-mpi export runs/* --format tensorboard --follow            # then tensorboard --logdir runs

torchscript   float32 [o] or [m, o] -> float32 [a] or [m, a] in the task's bounds; needs torch
onnx          "observation" float32 [m, o] -> "action" float32 [m, a]; needs torch, onnx, onnxscript
npz           the arrays; docs/how-to/export.md has the formula; needs numpy
csv           a row a generation; columns as in docs/reference/hdf5.md; of fitness and evaluations
              mean, min and max
tensorboard   curves against --step: eval/mean_reward, rollout/ep_rew_mean (of 50 episodes),
              rollout/ep_len_mean, time/fps, train/... as stable-baselines3 calls them, others by
              their HDF5 names. FOLDER gets a folder for each run. --follow adds new rows while runs
              go on, until all have ended or Ctrl-C

A policy's file contains its action bounds and normaliser. It is read back, and asked for the
actions of 1,000 observations of a size from 0.1 to 10. If one differs by more than 1e-5 half ranges
of the action (float32 sums in another order), the file is removed and the command fails.
Cost: 1 s for npz, csv and tensorboard; 5 to 15 s for the others, mostly imports. Exit codes: 0; 1 a
file acts differently; 2 wrong usage, or not writable; 65 unreadable run; 130 after Ctrl-C.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from esac_mpi import Policy
from esac_mpi.analysis import histories
from esac_mpi.analysis.command import ended, opened, parser, refuse_unread
from esac_mpi.analysis.followed import Followed
from esac_mpi.analysis.messages import Unusable
from esac_mpi.host.paths import given
from esac_mpi.policies.formats import FORMATS, OBSERVATIONS, TOLERANCE, Unexportable, difference
from esac_mpi.record import Unreadable


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add = line.add_argument
    add("runs", nargs="+", type=given, metavar="RUN|POLICY", help="run directory, or policy.h5")
    text = "what to write, see above"
    add("--format", choices=(*FORMATS, *histories.FORMATS), required=True, help=text)
    text = "of tensorboard: add new rows until the runs end, or until Ctrl-C"
    add("--follow", action="store_true", help=text)
    text = "of --follow: time between looks at the files (5)"
    add("--every", type=float, default=5.0, metavar="SECONDS", help=text)
    text = "of tensorboard: the horizontal axis; default: env_steps"
    add("--step", choices=histories.STEPS, default="env_steps", help=text)
    text = "default: policy.pt, .onnx or .npz beside policy.h5; a history: in the run"
    add("--out", type=given, help=text)
    return line


def apart(paths: list[Path], out: Path | None) -> list[Path]:
    """Return each run's path once. Raises Unusable where two would write one file."""
    found = {path.resolve(): path for path in paths}
    if out and len({path.name for path in found}) < len(found):
        raise Unusable(f"--out {out}: runs of one name would share a folder; leave it out")
    return [*found.values()]


def written(options: argparse.Namespace) -> Iterator[Path]:
    """Write runs' histories; yield the files. Raises Unusable."""
    for run in opened(apart(options.runs, options.out)):
        yield histories.FORMATS[options.format](run, options.out, options.step)


def followed(options: argparse.Namespace) -> int:
    """Write curves while runs go on; return the exit code."""
    runs: Followed | None = None

    def files() -> Iterator[Path]:
        nonlocal runs
        runs = Followed(apart(options.runs, options.out))
        return histories.follow(runs, options.out, options.step, max(0.1, options.every))

    try:
        code = ended(files)
    except KeyboardInterrupt:
        return 130
    return (runs.code if runs else 0) or code


def main(argv: list[str]) -> int:
    """Write and name the file; return 1 if it acts otherwise, 2 if unwritable, 65 for no source."""
    line = command_line()
    options = line.parse_args(argv)
    history = options.format in histories.FORMATS
    try:
        if options.format != "tensorboard":
            unread = ("step", "follow", "every")
            refuse_unread(line, options, f"--format {options.format}", unread)
        elif not options.follow:
            refuse_unread(line, options, "without --follow, --format tensorboard", ["every"])
        if options.runs[1:] and (not history or (options.format == "csv" and options.out)):
            raise Unusable(f"--format {options.format} takes one run{' with --out' * history}")
    except Unusable as problem:
        line.error(str(problem))
    if options.follow:
        return followed(options)
    if history:
        return ended(lambda: written(options))
    write, suffix, needs = FORMATS[options.format]
    warnings.simplefilter("ignore")  # torch's, about TorchScript's age
    try:
        policy = Policy.load(options.runs[0])
        out = options.out or policy.path.with_suffix(suffix)
        if out.is_dir():
            raise Unexportable(f"{out}: a directory; name the file in it")
        out = out if out.suffix else out.with_suffix(suffix)  # some libraries add it, others do not
        if not os.access(out.parent, os.W_OK):
            raise Unexportable(
                f"{out.parent}: not a directory that can be written; choose another --out"
            )
        found = difference(policy, write(policy, out))
    except ImportError as error:
        print(f"--format {options.format} needs {error.name}: pip install {needs}", file=sys.stderr)
        return 2
    except (Unreadable, Unexportable, OSError) as error:
        print(error, file=sys.stderr)
        return 65 if isinstance(error, Unreadable) else 2
    limit = (
        f"{found:.1e} half ranges of the action on {OBSERVATIONS:,} observations "
        f"(allowed: {TOLERANCE:.0e}, float32)"
    )
    if not found <= TOLERANCE:
        out.unlink()
        print(f"{out} removed: it acts otherwise, by {limit}", file=sys.stderr)
        return 1
    print(f"{out}\nlargest difference {limit}")
    return 0
