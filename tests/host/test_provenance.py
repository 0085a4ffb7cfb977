"""Where a run's code comes from."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import finish

from esac_mpi.envs import make, probe
from esac_mpi.training import provenance

COMMIT = "-c user.name=a -c user.email=a@b commit -q --allow-empty -m something".split()


def git(folder: Path, *words: str) -> str:
    return finish(["git", *words], folder=folder).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, *COMMIT)
    return folder


def test_the_commit_is_what_git_says(checkout):
    beside = checkout.parent / "beside"
    git(checkout, "worktree", "add", "-q", str(beside), "-b", "other")
    git(beside, *COMMIT[:-1], "another")
    assert git(beside, "rev-parse", "HEAD") != git(checkout, "rev-parse", "HEAD")
    for folder in (checkout, beside):
        assert provenance.git_commit(folder) == git(folder, "rev-parse", "HEAD")


def test_it_is_found_among_packed_names_and_without_a_branch(checkout):
    git(checkout, "tag", os.fsdecode(b"l\xe4uft"))  # in no encoding of ours
    for words in (("pack-refs", "--all"), ("checkout", "-q", "--detach")):
        git(checkout, *words)
        assert provenance.git_commit(checkout) == git(checkout, "rev-parse", "HEAD")


def test_a_rank_that_sees_another_task_is_named(caplog):
    env = make("CyclicMDP-v0")

    def gather(mine):
        return [mine, {**mine, "physics": "other"}, {**mine, "cpu": "other", "cores": {0}}]

    world = SimpleNamespace(
        rank=0, size=3, nodes=2, library="", gather=gather, hosts=["a", "a", "b"]
    )
    provenance.gather(env, probe.probe(env), world, 0, ["x"], "es")
    assert "physics of rank 1 differs from rank 0's on a" in caplog.text
    assert "cpu of b differs from rank 0's on a" in caplog.text


def test_without_a_checkout_it_is_unknown(tmp_path):
    assert provenance.git_commit(tmp_path) == "unknown"


def test_a_library_that_is_loaded_and_not_installed_has_no_version(monkeypatch):
    monkeypatch.setitem(sys.modules, "found_by_its_path", SimpleNamespace())
    assert provenance.versions("", ["found_by_its_path"]) == provenance.versions("", ())
