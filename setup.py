"""Build the C extensions and put configs/ and jobs/ into a wheel; setup.cfg has the rest.

No -march=native: a binary built on a login node runs on other nodes. No contraction: the bits do
not depend on the CPU.
"""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py


class WithExamples(build_py):
    """Copy configs/ and jobs/ into the built package, where host/data_files.py finds them."""

    def run(self) -> None:
        """Build the modules, then copy."""
        super().run()
        for folder in () if self.editable_mode else ("configs", "jobs"):
            shutil.copytree(
                Path(__file__).parent / folder,
                Path(self.build_lib, "esac_mpi", folder),
                dirs_exist_ok=True,
            )


setup(
    cmdclass={"build_py": WithExamples},
    ext_modules=[
        Extension(
            "esac_mpi.operators._kernels",
            ["esac_mpi/operators/_kernels.c"],
            depends=["esac_mpi/operators/_common.h"],
            extra_compile_args=[
                "-O3",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fno-trapping-math",
            ],
        ),
        Extension(
            "esac_mpi.learners._learner",
            ["esac_mpi/learners/_learner.c"],
            depends=["esac_mpi/learners/_learner.h", "esac_mpi/operators/_common.h"],
            extra_link_args=["-pthread"],
            extra_compile_args=[
                "-pthread",
                "-O3",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fno-trapping-math",
            ],
            optional=True,  # no GCC on x86-64: the learner uses torch
        ),
        # no module, but loaded by its path (learners/cpu.py)
        Extension("esac_mpi.learners._mkl", ["esac_mpi/learners/_mkl.c"], optional=True),
    ],
)
