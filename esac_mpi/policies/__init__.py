"""What is done with a policy that a run left; simulator and torch are imported inside functions.

May import: host, config, operators, envs, record, comm, play, learners, algorithms, analysis.
Begin with: evaluation.py and formats.py.
"""
