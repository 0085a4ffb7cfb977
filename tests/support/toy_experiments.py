"""An experiment of two variants of ES on the cyclic MDP, and runs of it that need not be made."""

from pathlib import Path

import numpy as np
from run_files import leave
from words import written

from esac_mpi.studies.experiments import design

TOY = """
title = "a toy"
claim = "none"
[settings]
task.horizon = 50
policy.hidden = [8, 8]
evaluation.every = 3
evaluation.episodes = 2
[tasks.cyclic]
config = "cyclic-mdp"
[variants.ES]
es.lr_es = 0.05
[variants."ES two"]
es.lr_es = 0.02
[budgets.smoke]
seeds = 2
[budgets.smoke.settings]
budget.generations = 4
es.population_size = 10
"""


def planned(path, text=TOY, budget="smoke", root=Path("runs")):
    return design.runs(design.experiment(written(path, text)), budget, root)


def finished(path, config, status="complete", ranks=1):
    row = {"generation": 1, "env_steps_population": 10, "nominal_steps": 10, "gradient_updates": 0}
    rows = [({**row, "fitness": np.ones(2)}, {"wall_seconds": 30.0})]
    leave(path, rows, config, {"ranks": ranks}, status)
