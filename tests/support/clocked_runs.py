"""Runs whose clock on other ranks is known by hand."""

import numpy as np
from conftest import CORRECTED
from run_files import leave

NONE, FOUR = None, (1.0,) * 4
MACHINE = {"nodes": 1, "blocks": 1, "device": "cpu"}
ROWS = [
    (FOUR, True, NONE, (0.5, 0.5)),
    (FOUR, False, NONE, (0.5, 0.5)),
    (FOUR, False, (5.0, 3.0, 300), (0.5, 0.5)),
]


def run_of(path, rows, ranks=1, slow=1.0, returns=(), trials=(), beside=0.0, **settings):
    """Leave a run behind whose generations are these rows.

    A row: members, whether a phase began, (phase, updating, updates), episodes.

    Beside them a generation has 0.1 s of writing, 0.2 s of update and 0.3 s of its own; `slow`:
    other work made it so longer.
    trials: of each row the seconds of its trial episodes, nan where it had none. beside: what one
    rank did beside members [s].
    """
    few = {"evaluation.episodes": 1, "evaluation.every": 1, "esac.population_size": 4}
    base = {**CORRECTED, "algorithm": "esac", **few, **settings}
    left, wall, counted, phases = [], 0.0, 0, 0
    for g, (members, begun, phase, evaluation) in enumerate(rows, 1):
        lasted, updating, updates = phase or (np.nan, np.nan, 0)
        alone = ranks == 1
        tried = np.array(trials[g - 1] if trials else ())
        evaluate = np.nansum(members) + np.nansum(tried) + beside if alone else max(members)
        own = 0.2 + 0.3 + evaluate + sum(evaluation) + np.nan_to_num(lasted) * alone
        wall, counted, phases = wall + slow * (own + 0.1), counted + updates, phases + bool(phase)
        row = {
            "generation": g, "sac_phase": int(begun), "learner_phases": phases,
            "gradient_updates": counted,
            "fitness": np.zeros(len(members)),
            "evaluation_theta_es": np.array([returns[g - 1] if returns else 0.0]),
            "evaluation_sac": np.zeros(1), "env_steps_population": g,
            "nominal_steps": g, "env_steps_learner": g,
        }  # fmt: skip
        timing = {
            "busy_seconds": np.array([evaluate] * ranks), "member_seconds": np.array(members),
            "seconds_evaluate": evaluate,
            "member_expected": np.ones(len(members)), "evaluation_seconds": np.array(evaluation),
            "seconds_plan": 0.0,
            "seconds_learn": np.nan_to_num(lasted) * alone, "seconds_phase": lasted,
            "seconds_updates": updating,
            "seconds_update": 0.2, "seconds_evaluation": sum(evaluation), "seconds_record": 0.1,
        }  # fmt: skip
        if tried.size:
            timing["trial_seconds"] = tried
        timing = {name: slow * np.asarray(value) for name, value in timing.items()}
        timing |= {"wall_seconds": wall, "seconds_processor": own + 0.1}
        left.append((row, timing))
    return leave(path, left, base, {"ranks": ranks, **MACHINE})


def erl_run_of(
    path, generations, ranks=1, evaluate=4.0, offspring=4.0, learn=3.0, update=0.5, busy=(11.0,)
):
    """Leave a run of ERL behind.

    A generation: of three slots four episodes of 1 s, two children of 2 s, beside them 3 s of the
    learner. Of these, 200 updates take 2 s. Beside them a generation has 0.1 s of writing, 0.25 of
    its plan, 0.5 of update on one rank, and 0.15 of its own. evaluate, offspring, learn, update:
    what these parts took on its ranks; busy: its ranks.
    """
    base = {"algorithm": "pderl", "erl.population_size": 3, "evaluation.episodes": 1}
    rows = []
    whole = 0.1 + evaluate + 0.25 + offspring + learn + update + 0.15
    for g in range(1, generations + 1):
        row = {
            "generation": g, "learner_phases": g, "gradient_updates": 200 * g,
            "nominal_steps": 400 * g, "fitness": np.zeros(3),
            "slot_kind": np.array([0, 2, 2]), "mutated": np.array([1, 0, 0]),
            "evaluation_champion": np.full(1, np.nan),
            "evaluation_learner": np.full(1, np.nan), "env_steps_population": g,
            "env_steps_learner": g,
        }  # fmt: skip
        timing = {
            "busy_seconds": np.array(busy), "member_seconds": np.ones(4),
            "member_expected": np.ones(4),
            "offspring_seconds": np.array([0.0, 2.0, 2.0]),
            "offspring_expected": np.array([0.1, 1.0, 1.0]),
            "seconds_evaluate": evaluate, "seconds_plan": 0.25, "seconds_offspring": offspring,
            "seconds_learn": learn,
            "seconds_phase": 3.0, "seconds_updates": 2.0, "seconds_update": update,
            "seconds_evaluation": 0.0,
            "evaluation_seconds": np.full(2, np.nan), "seconds_record": 0.1,
            "wall_seconds": g * whole,
            "seconds_processor": whole,
        }  # fmt: skip
        rows.append((row, timing))
    return leave(path, rows, base, {"ranks": ranks, **MACHINE})
