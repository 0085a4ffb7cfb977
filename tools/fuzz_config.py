"""Feed the configuration nonsense: each piece gives a run, or one clear message and exit code 2; never a traceback.

    python tools/fuzz_config.py [--count 10000] [--run 50] [--seed 0]

`count` random and mutated configurations (TOML files and command lines: wrong names and types, huge, negative, nan, empty,
unicode, nested nonsense, impossible combinations) go through config.load in this process; what is accepted must come back
the same from its own TOML. `run` more go through the program: it runs to the end of a tiny budget with exit code 0, or
prints one message, exits with 2 and creates nothing, or stops with 1 because a number is not finite any more. Cost: 0.03 s
of a core a configuration, 1 to 5 s a run. Prints what failed, with the case to try again; exits with 1 if anything did.
"""

import argparse
import io
import json
import os
import random
import resource
import string
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from esac_mpi import config
from esac_mpi.config.reads import conditions, reads

ROOT = Path(__file__).resolve().parent.parent
MEMORY = 8 * 2**30  # address space of a run [bytes]
TEXTS = [
    "",
    " ",
    "läufe ü 中",
    "a" * 3000,
    "\u202e\u0000",
    "'\"\\",
    "nan",
    "-1",
    "--seed",
    "x.toml",
    "CyclicMDP-v0",
    "none:None-v0",
    "\udcff",
]
NUMBERS = [
    *("0", "-1", "1", "2", "7", "11", "0.5", "-0.0", "1e-320", "1e400", "inf", "-inf", "nan", "2**3", "1_000", "0x10", "٣"),
    *(str(2**31), str(2**63), str(-(2**63)), str(10**30), "9" * 400, "9" * 5000, "1e308", "True", "None", "[1]"),
]
TOML_VALUES = [
    *NUMBERS, '""', '"x"', '"\\u0000"', '"läufe"', "true", "[]", "[1, 2]", "[-1]", "[1.5]", '["a"]', "[[8]]", "{}", "{a = 1}",
    "2026-01-01", "07:00", "[" * 3000, "[" * 3000 + "]" * 3000, "", "'''", "{a = {b = {c = []}}}", "[8, 8]", "[0]", "[8, true]",
]  # fmt: skip
LINES = [
    "\ufeff",
    "[",
    "[[task]]",
    "[task.id]",
    "= 1",
    "a.b.c = 1",
    "\x00",
    "#\x01",
    "[esac]\n[esac]",
    "seed = 1\nseed = 2",
    '"" = 1',
    "task = 1",
]
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
"""  # a file: what an algorithm does not read is no error there


class Wrong(Exception):
    """An answer that a person should not get."""


def hint(name: str) -> Any:
    """Return the type of a field."""
    section, _, key = name.rpartition(".")
    owner = get_type_hints(config.Config)[section] if section else config.Config
    return get_type_hints(owner)[key]


def fitting(choose: random.Random, name: str, toml: bool) -> str:
    """Return a value of the right type, small, seldom out of range."""
    kind = hint(name)
    if get_origin(kind) is Literal:
        text = choose.choice(get_args(kind))
        return json.dumps(text) if toml else text
    if kind is bool:
        return choose.choice(["true", "false"])
    if kind is str:
        return json.dumps("cpu") if toml else "cpu"
    if kind is float:
        return str(choose.choice([0.0, 0.1, 0.5, 1.0, 3.0]))
    if kind is int:
        return str(choose.choice([0, 1, 2, 3, 6, 10]))
    return "[8, 4]" if toml else "8"


def wrong_name(choose: random.Random, name: str) -> str:
    """Return the name with something wrong with it."""
    place = choose.randrange(len(name) + 1)
    return choose.choice(
        [name[:place] + choose.choice(string.printable[:95] + "ü中") + name[place:], name[:place] + name[place + 1 :],
         name.upper(), name.rpartition(".")[2], name + ".x", "", "." * 50, "x" * 2000, "läufe", name.partition(".")[0]]
    )  # fmt: skip


def toml_text(choose: random.Random) -> str:
    """Return the text of a configuration file, mostly with something wrong in it."""
    tables: dict[str, list[str]] = {}
    for name in choose.sample(config.NAMES, choose.randrange(1, 6)):
        value = fitting(choose, name, toml=True) if choose.random() < 0.7 else choose.choice(TOML_VALUES)
        name = wrong_name(choose, name) if choose.random() < 0.05 else name
        section, _, key = name.rpartition(".")
        key = key if choose.random() < 0.95 else json.dumps(key, ensure_ascii=False)
        tables.setdefault(section, []).append(f"{key} = {value}")
    lines = tables.pop("", [])
    for section, entries in tables.items():
        lines += [f"[{section}]", *entries]
    if choose.random() < 0.1:
        lines.insert(choose.randrange(len(lines) + 1), choose.choice(LINES))
    return "\n".join(lines) + "\n"


def spoilt(choose: random.Random, text: str) -> bytes:
    """Return the text as bytes, now and then with some of them changed."""
    content = bytearray(text.encode(errors="surrogatepass"))
    while content and choose.random() < 0.1:
        content[choose.randrange(len(content))] = choose.randrange(256)
    return bytes(content)


def words(choose: random.Random, wrong: float = 0.3) -> list[str]:
    """Return a command line, each word with a chance of being wrong."""
    algorithm = choose.choice(config.ALGORITHMS)
    read = [name for name in config.NAMES if reads(algorithm, name) and not conditions(name)]
    line = [f"--algorithm={algorithm}"]
    for name in choose.sample(read if choose.random() < 0.8 else config.NAMES, choose.randrange(1, 5)):
        any_value = choose.choice([*NUMBERS, *TEXTS])
        value = any_value if choose.random() < wrong else fitting(choose, name, toml=False)
        name = wrong_name(choose, name) if choose.random() < wrong / 5 else name
        name = name.replace("_", "-") if choose.random() < 0.3 else name
        line += [f"--{name}={value}"] if choose.random() < 0.5 else [f"--{name}", value]
    if choose.random() < wrong / 3:
        extra = [
            "--fresh",
            "--",
            "-h",
            "--help",
            "-x",
            "x.toml",
            ".toml",
            "",
            "ü",
            "--seed",
            "--tyro-print-completion",
            "/",
            "@x",
        ]
        line.insert(choose.randrange(len(line) + 1), choose.choice(extra))
    return [word.replace("\0", "") for word in line]  # the system passes no zeros


def case(seed: str, directory: Path) -> list[str]:
    """Return the command line of a case; its file, if it has one, lies in the directory."""
    choose = random.Random(seed)
    line = words(choose) if choose.random() < 0.5 else []
    if not line or choose.random() < 0.3:
        file = directory / "case.toml"
        file.write_bytes(spoilt(choose, toml_text(choose)))
        line.insert(0, str(file))
    return line


def verdict(seed: str) -> tuple[str, str]:
    """Return how config.load answers a case, and what is wrong with that, empty if nothing."""
    with tempfile.TemporaryDirectory() as directory:
        line = case(seed, Path(directory))
        output, errors = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(output), redirect_stderr(errors):
                found, _ = config.load(line)
                back = Path(directory) / "back.toml"
                found = config.updated(found, {"run_dir": "", "max_hours": 0.0})  # which are not saved
                back.write_text(config.to_toml(found), encoding="utf-8", errors="replace")
                again = config.updated(config.Config(), config.read_toml(back))
            same = again == found or any("\ud800" <= c <= "\udfff" for c in repr(found) + "".join(line))
            return "accepted", "" if same else f"{seed}: {line}: its own TOML gives another configuration"
        except config.ConfigError as error:
            return "ConfigError", "" if str(error).strip() else f"{seed}: {line}: an empty message"
        except SystemExit as end:
            if end.code == 0 and output.getvalue().strip():
                return "help", ""
            wrong = end.code != 2 or not errors.getvalue().strip()
            return "parser", f"{seed}: {line}: exit {end.code}, {errors.getvalue()!r}" if wrong else ""
        except BaseException:
            return "crash", f"{seed}: {[word[:200] for word in line]}: {traceback.format_exc(limit=-4)}"


def limit_memory() -> None:
    """Let a run that wants too much memory be told so, in place of the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run_verdict(seed: str) -> tuple[str, str]:
    """Return how the program answers a command line, and what is wrong with that, empty if nothing."""
    choose = random.Random(seed)
    line = words(choose, wrong=0.5)
    with tempfile.TemporaryDirectory() as directory, tempfile.NamedTemporaryFile("w", suffix=".toml") as tiny:
        tiny.write(TINY)
        tiny.flush()
        command = [sys.executable, "-m", "esac_mpi", tiny.name, *line]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if not any(word.startswith("--run") for word in line):
            command += ["--run-dir", "run"]
        try:
            done = subprocess.run(
                command, env=environment, cwd=directory, capture_output=True, preexec_fn=limit_memory, timeout=120, check=False
            )
        except subprocess.TimeoutExpired:
            return "endless", f"{seed}: {command}: not finished after 120 s"
        errors, created = done.stderr.decode(errors="replace"), os.listdir(directory)
    if done.returncode == 1 and "finite" in errors:  # numbers that a network or a return did not survive
        return "not finite", ""
    messages = [text for text in errors.splitlines() if text.startswith(("esac_mpi:", "╭"))]
    asked = any(word in ("-h", "--help") for word in line)
    wrong = {0: not created and not asked, 2: len(messages) != 1 or bool(created)}.get(done.returncode, True)
    if wrong or "Traceback" in errors:
        return f"exit {done.returncode}", f"{seed}: {command}: exit {done.returncode}, created {created}\n{errors[-1500:]}"
    return f"exit {done.returncode}", ""


def many(judge: Callable[[str], tuple[str, str]], seeds: list[str]) -> list[str]:
    """Judge all, on all cores; print how often each answer came; return what was wrong."""
    with ProcessPoolExecutor() as pool:
        answers = list(pool.map(judge, seeds, chunksize=max(1, len(seeds) // 200)))
    print(", ".join(f"{answer}: {count}" for answer, count in sorted(Counter(answer for answer, _ in answers).items())))
    return [problem for _, problem in answers if problem]


def main(argv: list[str]) -> int:
    """Try all; return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="configurations for config.load")
    parser.add_argument("--run", type=int, default=50, help="command lines for the program")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    problems = many(verdict, [f"{options.seed} load {n}" for n in range(options.count)])
    problems += many(run_verdict, [f"{options.seed} run {n}" for n in range(options.run)])
    for problem in problems:
        print(problem.encode(errors="backslashreplace").decode())
    print(f"{options.count} configurations, {options.run} runs: {len(problems)} wrong answers")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
