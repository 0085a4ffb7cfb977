"""A grid of settings: the program's arguments for each, and what its runs are called."""

from argparse import Namespace
from collections.abc import Iterator
from itertools import product

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import ALGORITHMS, Config, read_toml
from esac_mpi.config.fields import full_name, is_list
from esac_mpi.config.reads import reads
from esac_mpi.studies.experiments.plan import SEEDS

OWN = {
    "seed": "seeds are --seeds",
    "run_dir": "every run has its own, below --root",
    "algorithm": "algorithms are --algorithms",
}


def seeds(texts: list[str]) -> list[int]:
    """Return the seeds that numbers and ranges like 0-4 name. Raises Unusable."""
    found: list[int] = []
    for text in texts:
        first, dash, last = text.partition("-")
        numbers = first.isdecimal() and (last.isdecimal() or not dash)
        begin, end = (int(first), int(last or first)) if numbers else (0, -1)
        if not begin <= end < min(2**63, begin + SEEDS):
            wanted = f"a number or a range like 0-4, below 2**63, of at most {SEEDS:,} seeds"
            raise Unusable(f"--seeds {text}: expected {wanted}")
        found += range(begin, end + 1)
    return list(dict.fromkeys(found))


def fields(
    algorithm: str, varied: list[list[str]], algorithms: list[str]
) -> list[list[tuple[str, str]]]:
    """Return (name, value) pairs for each field that the algorithm reads. Raises Unusable."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, *values in varied:
        if not values:
            raise Unusable(f"--set {name}: needs one value or more")
        if name in OWN:
            raise Unusable(f"--set {name}: {OWN[name]}")
        full = full_name(algorithm, name)
        if full in found:
            raise Unusable(f"--set {name}: {full} is set twice")
        if reads(algorithm, full) or not any(reads(other, full) for other in algorithms):
            found[full] = [(full, value) for value in values]
    return [*found.values()]


def tidy(text: str) -> str:
    """Return a text as part of a directory's name."""
    return text.replace("/", "-").replace(":", "-").replace(" ", "x")


def combinations(options: Namespace) -> Iterator[tuple[list[str], str]]:
    """Yield the grid: arguments but for the seed, and a name. Raises Unusable."""
    starts = [
        ([str(path)], path.stem, read_toml(path).get("algorithm", Config.algorithm))
        for path in options.configs
    ]
    starts += [(["--task.id", task], tidy(task), Config.algorithm) for task in options.tasks]
    starts = starts or [([], "HalfCheetah-v5", Config.algorithm)]
    own_task = options.tasks or not options.configs
    if own_task and any(name == "task.id" for name, *_ in options.set):
        raise Unusable("--set task.id: tasks are --tasks")
    algorithms = options.algorithms or [own for *_, own in starts]
    if unknown := [name for name in algorithms if name not in ALGORITHMS]:
        told = f"there is no such algorithm; there are {', '.join(ALGORITHMS)}"
        raise Unusable(f"--algorithms {unknown[0]}: {told}")
    for arguments, name, own in starts:
        for algorithm in options.algorithms or [own]:
            values = fields(algorithm, options.set, algorithms)
            for chosen in product(*values):
                varied = [
                    tidy(f"{key.split('.')[-1]}{value}")
                    for (key, value), many in zip(chosen, values, strict=True)
                    if many[1:]
                ]
                words = [*arguments, "--algorithm", algorithm]
                for key, value in chosen:
                    words += [f"--{key}", *(value.split() if is_list(key) else [value])]
                yield words, "-".join([name, algorithm, *varied])
