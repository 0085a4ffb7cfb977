"""Which cores the ranks may run on, and what is wrong with that."""

import os


def cores() -> list[int]:
    """List the cores that this process may run on; after all imports, of which some change it."""
    return sorted(os.sched_getaffinity(0))


def complaints(hosts: list[str], allowed: list[list[int]], threads: int) -> list[str]:
    """Return warnings about the ranks' cores.

    hosts: of each rank; allowed: cores that each rank may run on; threads: the learner's, on rank 0
    (0 = no learner).
    """
    found = []
    for host in dict.fromkeys(hosts):
        ranks = [r for r, name in enumerate(hosts) if name == host]
        union = set().union(*(allowed[r] for r in ranks))
        # those of rank 0 alone that have cores
        more = threads - 1 if 0 in ranks and 1 < threads <= len(allowed[0]) else 0
        if len(ranks) + more > len(union):
            further = f" and {more} more thread(s) of the learner" if more else ""
            found.append(
                f"{len(ranks)} ranks of {host}{further} share {len(union)} core(s) and will take "
                "turns: start fewer, or have the launcher bind each to a core of its own (Slurm: "
                "--cpu-bind=cores; Open MPI: --bind-to core, or none on a small machine)"
            )
    if threads > len(allowed[0]):
        has = f"rank 0 may run on {len(allowed[0])} core(s)"
        remedy = "have the launcher give it more, or give a new run fewer"
        found.append(f"learner.threads = {threads}, but {has}: {remedy}")
    return found
