"""What an evaluating rank spends its time on: numbers, policies, sums over observations, its loop.

Compiled from _kernels.c, so that all ranks and machines have the same bits. The forward pass adds
the terms of an output in the order of the inputs, after the bias, and leaves out inputs that are
zero (so a weight that is nan or inf shows only when its input is not zero). Sums over the units of
a layer, for its normalisation, are made in sixteen float32 parts: every sixteenth unit in order,
then the parts in order.
"""

from typing import Any

import numpy as np

from esac_mpi.host.data_files import extension

INTERFACE = 6  # what _kernels.c takes and returns
_kernels: Any = extension("esac_mpi.operators._kernels", INTERFACE)
NAME = "compiled"  # in a run's provenance; earlier versions could do with "numpy"
# added to the variance of a layer's sums: torch.nn.LayerNorm's; _kernels.c has it too
LAYER_NORM_EPSILON = 1e-5

# fill_normal(seed, purpose, generation, member, block, out): standard normals into float32 [size];
# noise.py: normal()
fill_normal: Any = _kernels.normal

# The forward pass: load(theta [d]); act(observation, out, whether to scale to the bounds, mean,
# std), both None where observations are not standardised. With draws the last layer is [mean; log
# std], out has standard normals at first, and the action is SAC's: tanh(mean + std * normal).
Perceptron: Any = _kernels.Perceptron

# Policy and physics in turn, both read where the simulator holds them: Loop(ctrl, begin, advance,
# sees, views, ranges, alarms). A run calls `begin`, each step `advance`: tuples of (function,
# *arguments). The first `sees` numbers of `views` are observed, clipped to `ranges`; the rest are
# traced. run(network, mean, std, observations [n + 1], traces [n + 1], actions [n]) takes n steps,
# or fewer: `steps`; `within` says whether the last trace was in range. Row 0 of observations is
# acted on first. A network writes the actions, over the normals of drawn ones; None: they are
# given. A trace at an end of its range or beyond ends a run, and so does an observation that is not
# finite, or an alarm. Of no steps, row 0 observes the state as it is.
Loop: Any = _kernels.Loop

# count_in(sums, observation): adds float32 [o] to count, sum and sum of squares, float64 [3, o]
count_in: Any = _kernels.count_in
finite: Any = _kernels.finite  # whether all numbers, float32 [n], are


def layer_normalised(x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Normalise the sums x of a layer, float32 [units], as torch.nn.LayerNorm does."""
    centred = x - x.mean()
    scale = 1 / np.sqrt(np.mean(centred * centred) + np.float32(LAYER_NORM_EPSILON))
    return centred * scale * gain + shift
