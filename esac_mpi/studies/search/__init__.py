"""Search for good settings: Optuna proposes trials, the tasks of a job array run them at once."""
