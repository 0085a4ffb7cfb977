"""A search for good settings: trials are runs, which any number of tasks of a job array make at once; Optuna proposes them."""
