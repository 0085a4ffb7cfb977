"""What a run's networks take of rank 0's memory at least, told before any is made. No torch here.

The system gives memory as it is written, so that networks too large fill it until something is
killed. A small network is counted; what it holds per parameter large ones hold, too.
"""

import os
from types import SimpleNamespace

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, amend, as_words, estimate
from esac_mpi.envs import Env
from esac_mpi.host import ram
from esac_mpi.operators.noise import BLOCK, PIECES
from esac_mpi.play import state
from esac_mpi.play.epsilon import Philox
from esac_mpi.play.params import Params, make_layout
from esac_mpi.training.counter import Counter
from esac_mpi.training.ended import TooLarge

LARGE = 2**24  # parameters; fewer are not looked at
SMALL = BLOCK * PIECES  # parameters from which on a sum over slots has one chunk
IMAGES = 2  # of what a checkpoint saves: an HDF5 file in memory, and its bytes
# actor and critic: values, gradient and two moments each; but for the gradient all is saved, copied
LEARNER = 8 + 6 * (1 + IMAGES)  # float32 a parameter, at least
GPUS = "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"  # with one, a learner's may not be the machine's


def network_bytes(config: Config, env: Env) -> int:
    """Count the memory that networks take on rank 0's node, at least [bytes]."""
    d, config = make_layout(config, env).d, estimate(config)
    small = narrow(config, env)
    each = shared_bytes(small, env) / make_layout(small, env).d
    elsewhere = config.learner.device != "cpu" and any(map(os.path.exists, GPUS))
    if ALGORITHMS[config.algorithm].DECLARES.learning and not elsewhere:
        each += 4 * LEARNER
    return int(each * d)


def narrow(config: Config, env: Env) -> Config:
    """Narrow the layers until some million parameters are left."""
    width, found = 1, config
    while width == 1 or make_layout(found, env).d < SMALL:
        width *= 2
        found = amend(config, {"policy.hidden": (width,) * len(config.policy.hidden)})
    return found


def shared_bytes(config: Config, env: Env) -> int:
    """Count the bytes of a State that a node's ranks share, and of a checkpoint with it."""
    layout, counter = make_layout(config, env), Counter(1)
    algorithm = ALGORITHMS[config.algorithm]
    # a critic has about as many
    operators = (
        SimpleNamespace(critic_size=layout.d) if algorithm.DECLARES.operators(config) else None
    )
    params = Params(config, layout, env.horizon, Philox(config.seed), operators)
    saved = state.arrays(algorithm.init(params, counter))
    return counter.bytes + IMAGES * sum(array.nbytes for array in saved.values())


def refuse_too_large(config: Config, env: Env, memory: int) -> None:
    """Raise TooLarge if networks take more than `memory` [bytes]."""
    d = make_layout(config, env).d
    if d < LARGE or not config.policy.hidden or (need := network_bytes(config, env)) <= memory:
        return
    fits = ram.two_digits(d * memory // need)
    raise TooLarge(
        f"policy.hidden = {' '.join(as_words(config.policy.hidden))}: {d:,} parameters, of which "
        f"{config.algorithm} comes to hold {ram.size(need)} or more, and the machine of rank 0 has "
        f"{ram.size(memory)}: choose layers of {fits:,} parameters at most"
    )
