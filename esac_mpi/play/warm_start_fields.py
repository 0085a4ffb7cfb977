"""What a warm start takes of a state, as its fields declare it: `field(metadata={"part": Part(...)})`.

A field without a part is one of its own: a run of the same algorithm in the same task takes it. Policies, the arrays that
State.policies names, need no part: they are taken from any algorithm. Marked "members" are rows [n, d] of which each begins as
the policy that counts where they are not taken. Marked "generation" is the number of one: it is taken less the source's, since
generations begin at 0. Marked "transitions" is how many the learner's replay has ever had. Nobody has to say of generation,
counters and best that they begin anew.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Fields that are taken together, where all of them fit, or not at all."""

    name: str  # in words
    settings: tuple[str, ...] = ()  # fields of the algorithm's table that have to be the same
    common: bool = False  # whether an algorithm that has it, too, means the same by it


ANEW = Part("")  # begins as in any run
ADAM = Part("Adam's moments", ("optimiser", "fitness_shaping"), common=True)
OBSERVATIONS = Part("sums over observations", common=True)
TUNING = Part("the tuned sigma", ("sigma",))
VARIANCE = Part("variance", ("variance_init",), common=True)
DAMP = Part("damp", ("damp", "damp_limit", "damp_tau"), common=True)
