"""What proves the program and is never installed: bench/, race/, torture.py, gpu_check.py.

May import: all of esac_mpi, which imports nothing of it. Called as `python -m tools.bench`.
Begin with: bench/__main__.py.
"""

# in the environment, before numpy is imported: libraries with a thread each
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
