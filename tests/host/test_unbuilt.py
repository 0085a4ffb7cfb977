"""A package whose compiled parts are missing, or of another source."""

import shutil
import sys

import pytest
from conftest import ROOT, finish

from esac_mpi.host.data_files import extension
from esac_mpi.host.errors import Unbuilt, why_not_imported

ASK = "import esac_mpi\ntry:\n    esac_mpi.train()\nexcept ImportError as error:\n    print(error)"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """Make a package without its extensions, as a new checkout has it."""
    place = tmp_path_factory.mktemp("checkout")
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "esac_mpi", place / "esac_mpi", ignore=left_out)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "stream"),
    [(("-m", "esac_mpi", "--task.id", "CyclicMDP-v0"), 2, "stderr"), (("-c", ASK), 0, "stdout")],
)
def test_without_its_extension_the_program_says_so_in_a_line(hidden, words, code, stream):
    done = finish([sys.executable, *words], code, hidden, PYTHONPATH=str(hidden))
    (told,) = getattr(done, stream).splitlines()
    assert "is not built" in told
    assert "C compiler" in told
    assert not (hidden / "runs").exists()


def test_an_extension_of_another_source_is_refused():
    with pytest.raises(Unbuilt, match="another source"):
        extension("esac_mpi.operators._kernels", -1)


def test_a_library_that_is_missing_is_told_with_its_remedy():
    told = why_not_imported(ModuleNotFoundError("No module named 'h5py'", name="h5py"))
    assert told.startswith("No module named 'h5py': activate the environment")
    assert not why_not_imported(ModuleNotFoundError("No module named 'mine'", name="mine"))
