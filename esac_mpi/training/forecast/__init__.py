"""What a run will cost: measured pieces of its work, followed through its schedule.

populations, learners, distributions, genetic and arrivals make the generations that algorithms will
ask for; work follows them through the ranks, outlook adds up, advice does so for other settings and
names what helps most. phases and operators measure. Nothing here changes a run.
"""

from typing import NamedTuple


class Moment(NamedTuple):
    """Where a run has come to at the end of a generation."""

    now: float  # [s]
    work: float  # of all ranks in this generation [s]
    env_steps: float  # of this generation
    nominal_steps: float
    effort: int  # members that the clock has followed in it, or what is as much
