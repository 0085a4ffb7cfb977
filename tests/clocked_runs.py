"""Runs whose clock on other ranks is known by hand."""

import numpy as np

from esac_mpi.config import Config, updated
from esac_mpi.record import Run

NONE, FOUR = None, (1.0,) * 4
ROWS = [(FOUR, True, NONE, (0.5, 0.5)), (FOUR, False, NONE, (0.5, 0.5)), (FOUR, False, (5.0, 3.0, 300), (0.5, 0.5))]


def run_of(path, rows, ranks=1, slow=1.0, returns=(), trials=(), **settings):
    """Leave a run behind whose generations are these rows: members, whether a phase began, (phase, updating, updates), episodes.

    Beside them a generation has 0.1 s of writing, 0.2 s of update and 0.3 s of its own; `slow`: other work made it so longer.
    trials: of each row the seconds of its trial episodes, nan where it had none.
    """
    base = {"algorithm": "esac", "evaluation.episodes": 1, "evaluation.every": 1, "esac.population_size": 4, **settings}
    run = Run.begin(path, updated(Config(), base), {"ranks": ranks, "nodes": 1, "blocks": 1, "device": "cpu"})
    wall, counted, phases = 0.0, 0, 0
    for g, (members, begun, phase, evaluation) in enumerate(rows, 1):
        lasted, updating, updates = phase or (np.nan, np.nan, 0)
        alone = ranks == 1
        tried = np.array(trials[g - 1] if trials else ())
        evaluate = sum(members) + np.nansum(tried) if alone else max(members)
        own = 0.2 + 0.3 + evaluate + sum(evaluation) + np.nan_to_num(lasted) * alone
        wall, counted, phases = wall + slow * (own + 0.1), counted + updates, phases + bool(phase)
        row = {
            "generation": g, "sac_phase": int(begun), "learner_phases": phases, "gradient_updates": counted,
            "fitness": np.zeros(len(members)), "evaluation_theta_es": np.array([returns[g - 1] if returns else 0.0]),
            "evaluation_sac": np.zeros(1), "env_steps_population": g, "nominal_steps": g, "env_steps_learner": g,
        }  # fmt: skip
        timing = {
            "busy_seconds": np.array([evaluate] * ranks), "member_seconds": np.array(members), "seconds_evaluate": evaluate,
            "member_expected": np.ones(len(members)), "evaluation_seconds": np.array(evaluation), "seconds_plan": 0.0,
            "seconds_learn": np.nan_to_num(lasted) * alone, "seconds_phase": lasted, "seconds_updates": updating,
            "seconds_update": 0.2, "seconds_evaluation": sum(evaluation), "seconds_record": 0.1,
        }  # fmt: skip
        if tried.size:
            timing["trial_seconds"] = tried
        run.append(row, {name: slow * np.asarray(value) for name, value in timing.items()} | {
            "wall_seconds": wall, "seconds_processor": own + 0.1,
        })  # fmt: skip
    run.checkpoint(len(rows), {"theta_es": np.ones(3, np.float32)}, {})
    run.close()
    return Run.open(path)
