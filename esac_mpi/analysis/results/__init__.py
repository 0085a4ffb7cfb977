"""The compact record of an experiment, results.csv, and the tables, verdicts and pictures that are made of it alone."""
