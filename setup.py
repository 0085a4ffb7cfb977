"""Build the optional C extension; everything else about the package is in setup.cfg.

No -march=native: a binary built on a login node runs on other nodes. No contraction: the bits do not depend on the CPU.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "esac_mpi._kernels",
            ["esac_mpi/_kernels.c"],
            extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
            optional=True,  # no compiler: esac_mpi/kernels.py does the same in numpy
        )
    ]
)
