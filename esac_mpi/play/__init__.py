"""Episodes and who plays them: rollouts, population, transitions, a learner's phases, the state.

May import: host, config, operators, envs, record, comm.
Begin with: rollout.py, then population.py.
"""
