"""Episodes and who plays them: rollouts, population, transitions, a learner's phases, the state.

Begin with: rollout.py, then population.py.
"""
