"""Deterministic policies' learners: TD3's delay, ERL's critic, their updates against autograd."""

import math

import numpy as np
import pytest
import torch
from gradients import FORMS, Line, modules
from plain_td3 import Plain, assert_updates_are_autograds
from small_learners import RIVALS, learner, perturbed, run_phase
from torch import nn

from esac_mpi.config import Config, amend
from esac_mpi.learners import critics
from esac_mpi.learners.critics import Judge
from esac_mpi.learners.deterministic import note_clip
from esac_mpi.learners.network import Operations
from esac_mpi.operators.policy import Layout


def test_td3s_actor_moves_once_in_policy_delay_updates():
    form = {"policy_delay": 3, "start_steps": 16, "interleaved": False}

    def state() -> list[np.ndarray]:
        followers = (target.values.numpy().copy() for target in made.targets.values())
        return [made.actor.values.numpy().copy(), *followers]

    made, changed = learner("td3", **form), []
    before = state()
    for k in range(9):  # a step each after the first 16: one update a phase
        if k == 4:
            other = learner("td3", **form)
            other.load(made.arrays())
            other.replay.restore(0, made.replay.rows(0, made.replay.added))
            made = other
        phase = run_phase(made, Line(), k, 0, 1 if k else 17, cut=True)
        assert phase.gradient_updates == 1
        pairs = zip(before, state(), strict=True)
        changed.append([not np.array_equal(old, new) for old, new in pairs])
        assert math.isfinite(phase.mean_q) == changed[-1][0]
        before = state()
    assert changed == [[k % 3 == 2] * 3 for k in range(9)]


@pytest.mark.parametrize(("hidden", "layer_norm", "of_critics", "linear"), FORMS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", RIVALS)
def test_updates_are_those_of_autograd_and_torchs_adam(
    name, activation, hidden, layer_norm, of_critics, linear
):
    """Six updates, TD3's actor in every second; its noise is clipped here and there."""
    form = {"policy__activation": activation, "policy__layer_norm": layer_norm}
    form |= {"critic_layer_norm": of_critics, "policy__linear": linear}
    form |= {"policy_noise": 0.4} if name == "td3" else {}
    made = perturbed(learner(name, (3, *hidden, 2), batch_size=64, tau=0.1, **form))
    o = made.options

    def noise_is_clipped():
        share = np.mean(np.abs(o.policy_noise * made.update.noise) > o.noise_clip)
        assert 0.05 < share < 0.95

    own = (2, 0.0, noise_is_clipped) if name == "td3" else (1, o.critic_weight_decay)
    assert_updates_are_autograds(made, Plain(made, name, activation), *own)


def small(sizes=(3, 8, 8, 2), **values):
    return learner("erl", sizes, **{"critic_hidden": (5, 7), "start_steps": 0, **values})


class PlainCritic(nn.Module):
    """The critic of the public code in plain modules, in double precision."""

    def __init__(self, critic):
        super().__init__()
        self.observation, self.action = (modules(side)[0] for side in critic.sides)
        self.joint = modules(critic.joint, "elu")[0]

    def forward(self, seen):
        elu = nn.functional.elu
        observation, action = seen.tensor_split([self.observation[0].in_features], 1)
        sides = elu(self.observation(observation)), elu(self.action(action))
        return self.joint(torch.cat(sides, 1))


def test_the_critic_has_the_papers_numbers_and_first_weights():
    """HalfCheetah: 17 and 6 to 200 each, 400 to 300 with gain and shift, 300 to 1."""
    config, layout = Config(), Layout((17, 128, 128, 6), layer_norm=True)
    size = (17 + 1) * 200 + (6 + 1) * 200 + (400 + 1 + 2) * 300 + 301
    assert critics.critic_size(config, layout) == size == 126_201
    theta = critics.initial(config, layout)
    drawn = [part.initial(0, 17 + i) for i, part in enumerate(critics.layouts(config, layout))]
    last = theta[-301:]
    assert np.array_equal(theta[:-301], np.concatenate(drawn)[:-301])
    assert last[-1] == 0
    assert np.array_equal(last, drawn[-1][-301:] * np.float32(0.1))
    assert 0.9 < np.abs(last).max() / (0.1 * math.sqrt(6 / 301)) <= 1


def test_q_is_that_of_plain_modules():
    made = perturbed(small())
    random = np.random.default_rng(1)
    x, a = (random.uniform(-1, 1, (9, n)).astype(np.float32) for n in (3, 2))
    judge = Judge(amend(Config(), {"erl.critic_hidden": (5, 7)}), made.actor.layout)
    judge.load(made.critic_vector())
    plain = PlainCritic(made.critic)(torch.from_numpy(np.hstack([x, a])).double())[:, 0]
    assert np.allclose(judge(x, a), plain.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(made.critic_vector(), made.critic.values.numpy())


@pytest.mark.parametrize(
    ("hidden", "layer_norm", "limit", "linear"),
    [((8, 12), True, 2.3, False), ((8,), False, 1.2, False), ((8,), True, 1.2, True)],
)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_erls_updates_are_those_of_autograd_and_torchs_adam(
    activation, hidden, layer_norm, limit, linear
):
    """Six updates: what is measured, each gradient as it is cut, parameters and targets."""
    form = {"activation": activation, "layer_norm": layer_norm, "linear": linear}
    form = {f"policy__{name}": value for name, value in form.items()}
    made = perturbed(small((3, *hidden, 2), batch_size=64, tau=0.1, gradient_clip=limit, **form))
    made.targets["target_critic"].values.mul_(0.5)
    plain = Plain(made, "erl", activation, lambda critic: [PlainCritic(critic)])
    assert_updates_are_autograds(made, plain)
    assert min(plain.critic.norms) < limit < max(plain.critic.norms)


@pytest.mark.parametrize(
    ("limit", "cut"), [(10.0, [3.0, 4.0]), (5.0, [3.0, 4.0]), (1.0, [0.6, 0.8])]
)
def test_a_gradient_is_cut_to_its_largest_norm_as_torch_cuts_it(limit, cut):
    """Of norm 5: below the limit nothing changes, not a bit."""
    # At it torch's own 1e-6 shortens it by a fifth of that.
    gradient, do, parameter = torch.tensor([3.0, 4.0]), Operations(), nn.Parameter(torch.zeros(2))
    parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_([parameter], limit)
    note_clip(do, gradient, limit)
    do.run()
    assert gradient.tolist() == pytest.approx(parameter.grad.tolist(), rel=1e-7)
    assert gradient.tolist() == pytest.approx(cut, rel=1e-6)
    assert (gradient.tolist() == cut) == (limit == 10)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("name", "values"), [("td3", {}), ("sac", {}), ("sac", {"value_network": True})]
)
def test_a_judge_has_the_first_critic_of_the_learner(name, values, normed):
    made = learner(name, (3, 8, 6, 2), policy__layer_norm=True, critic_layer_norm=normed, **values)
    generator = torch.Generator().manual_seed(3)
    made.critic.values.add_(0.3 * torch.randn(made.critic.values.shape, generator=generator))
    layout = Layout((3, 8, 6, 2), layer_norm=True)
    changed = {"erl.learner": name, "policy.hidden": (8, 6), f"{name}.critic_layer_norm": normed}
    config = amend(Config(), {**changed, "policy.layer_norm": True})
    vector = made.critic_vector()
    size = 5 * 8 + 8 + 8 * 6 + 6 + 6 + 1 + normed * 2 * (8 + 6)
    assert vector.shape == (critics.critic_size(config, layout),) == (size,)
    judge = Judge(config, layout)
    judge.load(vector)
    random = np.random.default_rng(1)
    x, a = (random.uniform(-1, 1, (9, n)).astype(np.float32) for n in (3, 2))
    both = torch.from_numpy(np.hstack([x, a])).double()
    q = [plain(both)[:, 0].detach().numpy() for plain in modules(made.critic)]
    assert np.allclose(judge(x, a), q[0], rtol=1e-5, atol=1e-6)
    assert np.abs(q[0] - q[1]).max() > 0.1
    with pytest.raises(ValueError, match="must be float32"):
        judge.load(vector[:-1])
