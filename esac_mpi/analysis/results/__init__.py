"""The compact record of an experiment, results.csv, and its tables, verdicts and pictures."""
