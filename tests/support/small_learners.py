"""Learners small enough for a test, by name."""

from dataclasses import fields

from esac_mpi.config import Config, updated
from esac_mpi.learners import make
from esac_mpi.operators.policy import Layout

RIVALS = ["td3", "ddpg"]
OFF_POLICY = {"replay_capacity", "start_steps"}  # what a learner without a replay lacks


PLAIN = {
    "learner.device": "cpu",
    "learner.kernels": "torch",
    "policy.linear": False,
    "sac.lr_sac": 3e-4,
}


def learner(
    name: str, sizes: tuple[int, ...] = (1, 8, 8, 1), reserve: int = 0, seed: int = 0, **values
):
    """Return a small learner; `values`: fields of its table, or others as section__field."""
    small = {"batch_size": 16, "replay_capacity": 500, "start_steps": 30, **values}
    known = {f.name for f in fields(getattr(Config(), name))} | {
        key for key in values if key not in OFF_POLICY
    }
    chosen = {
        key.replace("__", ".") if "__" in key else f"{name}.{key}": value
        for key, value in small.items()
        if key in known
    }
    config = updated(Config(), {"seed": seed, **PLAIN, "policy.hidden": sizes[1:-1], **chosen})
    layout = Layout(sizes, config.policy.layer_norm, config.policy.path_gain)
    return make(name, config, layout, layout.initial(config.seed, 1), reserve)
