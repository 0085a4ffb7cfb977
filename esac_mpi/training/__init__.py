"""A training: session, loop, set-up, saving, evaluation, warm start, the check with its forecast.

May import: host, config, operators, envs, record, comm, play, learners, algorithms, analysis,
policies. Begin with: session.py, then loop.py.
"""
