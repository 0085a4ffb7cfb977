"""Networks' memory: what they take at least, and a refusal before any is made."""

from types import SimpleNamespace

import pytest
from conftest import TASK
from in_process import checked, started

from esac_mpi.config import load
from esac_mpi.play.params import make_layout
from esac_mpi.training import memory
from esac_mpi.training.ended import TooLarge

CHEETAH = SimpleNamespace(observation_size=17, action_size=6, horizon=1000)
WIDE = "--policy.hidden 20000 20000 --algorithm".split()
# vectors of State, thrice with a checkpoint's two images; of actor and critic values, gradient
# and two moments, all but the gradient copied and in two images
ES, SAC = 3 * 3, 3 * 1 + 2 * (4 + 3 * 3)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(memory, "GPUS", ())


@pytest.mark.parametrize(("algorithm", "vectors"), [("es", ES), ("sac", SAC)])
def test_what_large_networks_hold_is_counted_in_small_ones(algorithm, vectors):
    config = load([*WIDE, algorithm])[0]
    d = make_layout(config, CHEETAH).d
    assert memory.network_bytes(config, CHEETAH) == pytest.approx(4 * vectors * d, rel=1e-4)


def test_networks_that_cannot_fit_are_refused_with_what_would():
    config = load([*WIDE, "es"])[0]
    memory.refuse_networks(config, CHEETAH, 14 * 2**30)
    with pytest.raises(TooLarge) as refusal:
        memory.refuse_networks(config, CHEETAH, 2**30)
    said = "policy.hidden = 20000 20000: 400,500,108 parameters, of which es comes to hold 13.4 GiB"
    assert str(refusal.value).startswith(said)
    assert "of rank 0 has 1.0 GiB: choose layers of 29,000,000 " in str(refusal.value)
    memory.refuse_networks(load(["--policy.hidden", "512", "512"])[0], CHEETAH, 1)


def test_networks_that_cannot_fit_are_2_before_they_are_made(tmp_path, capfd):
    line = [*TASK, "--policy.hidden", 10**6, 10**6, "--run-dir", tmp_path / "run"]
    assert started(*line) == 2
    assert "policy.hidden = 1000000 1000000: 1,000,0" in capfd.readouterr().err
    assert checked(*line) == 2
    assert "too large" in capfd.readouterr().out
    assert not list(tmp_path.iterdir())
