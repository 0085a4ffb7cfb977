"""Many runs: experiments/ (the papers' and your own, as files), search/ (trials, by Optuna).

Begin with: experiments/design.py and experiments/running.py; search/study.py.
"""
