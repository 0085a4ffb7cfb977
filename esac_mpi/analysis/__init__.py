"""Tables and figures from the files of runs, for tools/ and notebooks. No MPI, no torch, no simulator."""
