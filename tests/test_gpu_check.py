"""tools/gpu_check.py where there is no GPU: what it compares, compared on a CPU, and that it says so."""

import numpy as np

from esac_mpi.benchmarks import gpu_bits


def test_on_a_cpu_every_learner_agrees_with_itself(monkeypatch):
    """Chunks against chunks to the bit; and losses of one by one, whose order of operations is the same."""
    monkeypatch.setattr(gpu_bits, "UPDATES", 6)
    findings = list(gpu_bits.bits("cpu", (8, 8)))
    assert len(findings) == 3 * len(gpu_bits.KINDS)
    assert all(finding.passed for finding in findings)


def test_what_does_not_agree_is_found(monkeypatch):
    monkeypatch.setattr(gpu_bits, "KINDS", {"TD3": gpu_bits.KINDS["TD3"]})
    monkeypatch.setattr(gpu_bits, "UPDATES", 3)
    make, number = gpu_bits.made, iter(range(4))

    def other(*arguments):
        learner = make(*arguments)
        if next(number):
            learner.critic.values.mul_(1.01)
        return learner

    monkeypatch.setattr(gpu_bits, "made", other)
    assert [finding.passed for finding in gpu_bits.bits("cpu", (8, 8))] == [False, False, False]


def test_differences_are_over_the_largest_value_of_each_statistic():
    one, other = np.array([[1.0, 200.0], [4.0, 100.0]]), np.array([[1.0, 200.0], [5.0, 110.0]])
    assert gpu_bits.difference(one, other) == 0.2
