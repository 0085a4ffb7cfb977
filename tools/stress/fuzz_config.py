"""Feed the configuration nonsense: each piece gives a run, or one clear message and exit code 2; never a traceback.

    python -m tools.stress.fuzz_config [--count 10000] [--run 50] [--seed 0]

`count` random and mutated configurations (TOML files and command lines: wrong names and types, huge, negative, nan, empty,
unicode, nested nonsense, impossible combinations) go through config.load in this process; what is accepted must come back
the same from its own TOML. `run` more go through the program: it runs to the end of a tiny budget with exit code 0, or
prints one message, exits with 2 and creates nothing, or stops with 1 because a number is not finite any more. Cost: 0.03 s
of a core a configuration, 1 to 5 s a run. Prints what failed, with the case to try again; exits with 1 if anything did.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from esac_mpi.config.exact import whole
from tools.parsing import parser
from tools.stress.answers import run_verdict, verdict


def many(judge: Callable[[str], tuple[str, str]], seeds: list[str]) -> list[str]:
    """Judge all, on all cores; print how often each answer came; return what was wrong."""
    with ProcessPoolExecutor() as pool:
        answers = list(pool.map(judge, seeds, chunksize=max(1, len(seeds) // 200)))
    print(
        ", ".join(
            f"{answer}: {count}"
            for answer, count in sorted(Counter(answer for answer, _ in answers).items())
        )
    )
    return [problem for _, problem in answers if problem]


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument("--count", type=whole, default=10_000, help="configurations for config.load")
    line.add_argument("--run", type=whole, default=50, help="command lines for the program")
    line.add_argument("--seed", type=whole, default=0)
    return line


def main(argv: list[str]) -> int:
    """Try all; return 1 if an answer was wrong."""
    options = command_line().parse_args(argv)
    problems = many(verdict, [f"{options.seed} load {n}" for n in range(options.count)])
    problems += many(run_verdict, [f"{options.seed} run {n}" for n in range(options.run)])
    for problem in problems:
        print(problem.encode(errors="backslashreplace").decode())
    print(f"{options.count} configurations, {options.run} runs: {len(problems)} wrong answers")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
