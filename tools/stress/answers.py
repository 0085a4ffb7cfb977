"""How config.load and the program answer nonsense, and what is wrong with an answer."""

import io
import os
import random
import resource
import subprocess
import sys
import tempfile
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import esac_mpi
from esac_mpi import config
from esac_mpi.config.files import UNSAVED
from tools.stress.nonsense import case, words

ROOT = Path(esac_mpi.__file__).parents[1]  # where the program is imported from
MEMORY = 8 * 2**30  # address space of a run [bytes]
TINY = """
task = {id = "CyclicMDP-v0", horizon = 20}
policy.hidden = [8]
budget.generations = 2
evaluation.episodes = 1
esac = {population_size = 6, sac_episodes = 1, sac_min_steps = 10, gradient_interval = 1, noise_table_size = 4096}
sac = {batch_size = 8, start_steps = 5, replay_capacity = 100, steps_per_generation = 20}
td3 = {batch_size = 8, start_steps = 5, replay_capacity = 100, steps_per_generation = 20, episodes_per_generation = 2}
ddpg = {batch_size = 8, start_steps = 5, replay_capacity = 100, steps_per_generation = 20, episodes_per_generation = 2}
ppo = {steps_per_generation = 20, batch_size = 8}
erl = {population_size = 4, memory_size = 40, distillation_epochs = 1, distillation_batch = 8, mutation_batch = 8, batch_size = 8}
"""  # a file: what an algorithm does not read is no error there


def verdict(seed: str) -> tuple[str, str]:
    """Return how config.load answers a case, and what is wrong with that, empty if nothing."""
    with tempfile.TemporaryDirectory() as directory:
        line = case(seed, Path(directory))
        output, errors = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(output), redirect_stderr(errors):
                found, _ = config.load(line)
                back = Path(directory) / "back.toml"
                defaults = dict(config.flatten(config.Config()))
                found = config.updated(found, {name: defaults[name] for name in UNSAVED})
                back.write_text(config.to_toml(found), encoding="utf-8", errors="replace")
                again = config.updated(config.Config(), config.read_toml(back))
            same = again == found or any(
                "\ud800" <= c <= "\udfff" for c in repr(found) + "".join(line)
            )
            return (
                "accepted",
                "" if same else f"{seed}: {line}: its own TOML gives another configuration",
            )
        except config.ConfigError as error:
            return "ConfigError", "" if str(error).strip() else f"{seed}: {line}: an empty message"
        except SystemExit as end:
            if end.code == 0 and output.getvalue().strip():
                return "help", ""
            wrong = end.code != 2 or not errors.getvalue().strip()
            return (
                "parser",
                f"{seed}: {line}: exit {end.code}, {errors.getvalue()!r}" if wrong else "",
            )
        except BaseException:
            return (
                "crash",
                f"{seed}: {[word[:200] for word in line]}: {traceback.format_exc(limit=-4)}",
            )


def limit_memory() -> None:
    """Let a run that wants too much memory be told so, in place of the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run_verdict(seed: str) -> tuple[str, str]:
    """Return how the program answers a command line, and what is wrong with that, empty if nothing."""
    choose = random.Random(seed)
    line = words(choose, wrong=0.5)
    with (
        tempfile.TemporaryDirectory() as directory,
        tempfile.NamedTemporaryFile("w", suffix=".toml") as tiny,
    ):
        tiny.write(TINY)
        tiny.flush()
        command = [sys.executable, "-m", "esac_mpi", tiny.name, *line]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if not any(word.startswith("--run") for word in line):
            command += ["--run-dir", "run"]
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=directory,
                capture_output=True,
                preexec_fn=limit_memory,
                timeout=120,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "endless", f"{seed}: {command}: not finished after 120 s"
        errors, created = done.stderr.decode(errors="replace"), os.listdir(directory)
    if (
        done.returncode == 1 and "finite" in errors
    ):  # numbers that a network or a return did not survive
        return "not finite", ""
    messages = [text for text in errors.splitlines() if text.startswith(("esac_mpi:", "╭"))]
    asked = any(word in ("-h", "--help") for word in line)
    wrong = {0: not created and not asked, 2: len(messages) != 1 or bool(created)}.get(
        done.returncode, True
    )
    if wrong or "Traceback" in errors:
        return (
            f"exit {done.returncode}",
            f"{seed}: {command}: exit {done.returncode}, created {created}\n{errors[-1500:]}",
        )
    return f"exit {done.returncode}", ""
