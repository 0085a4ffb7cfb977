"""Many runs: experiments/ (the papers' and your own, as files), search/ (trials, by Optuna).

May import: host, config, operators, envs, record, comm, play, learners, algorithms, analysis,
policies, training.
Begin with: experiments/design.py and experiments/running.py; search/study.py.
"""
