"""Experiments as files: what they are, what they cost, how they are run, drawn and submitted; for `esac-mpi experiment`."""
