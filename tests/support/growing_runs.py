"""A run whose returns grow, and commands that follow it."""

import numpy as np
from run_files import write


def going(
    path,
    algorithm="esac",
    seed=0,
    generations=40,
    task="HalfCheetah-v5",
    status="complete",
    every=5,
    **provenance,
):
    """Write a run whose returns grow to 30 * generations; return it, held."""
    random, best, rows = np.random.default_rng(seed), -np.inf, []
    for g in range(1, generations + 1):
        centre = 30 * g + 5 * seed
        row = {
            "generation": g, "env_steps_population": 5000 * g, "env_steps_learner": 100 * g,
            "env_steps_evaluation": 10 * (g // every), "nominal_steps": 1000 * g,
            "gradient_updates": 100 * g, "unstable_episodes": 0, "sigma": 0.005,
            "fitness": centre - 100 + 60 * random.standard_normal(10),
        }  # fmt: skip
        for policy, shift in {"theta_es": 0, "sac": 20}.items():
            if policy == "sac" and algorithm == "es":
                continue
            noise = 50 * random.standard_normal(10)
            returns = centre + shift + noise - noise.mean()
            row[f"evaluation_{policy}"] = returns if g % every == 0 else np.full(10, np.nan)
            best = max(best, row[f"evaluation_{policy}"].mean()) if g % every == 0 else best
        timing = {"wall_seconds": 60.0 * g, "busy_seconds": np.array([3.0, 1.0])}
        timing["seconds_evaluate"] = 4.0 if g % 2 else 2.0
        rows.append(({**row, "best_return": best}, timing))
    settings = {"algorithm": algorithm, "seed": seed, "task.id": task}
    return write(path, rows, settings, {"ranks": 2, "hosts": "node1", **provenance}, status)


def make(*about, **more):
    """Leave such a run behind, by what `going` takes; return its path."""
    run = going(*about, **more)
    run.close()
    return run.path


def one_more(run):
    rows = {"metrics": {}, "timing": {}}
    for name, column in run._history.tail.items():
        group, _, key = name.partition("/")
        rows.get(group, {})[key] = column[-1] + (key == "generation")
    run.append(rows["metrics"], rows["timing"])
    run.publish_metrics(force=True)
