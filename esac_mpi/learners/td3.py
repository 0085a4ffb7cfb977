"""TD3 (twin delayed DDPG), on rank 0: its parts, its phases, its update, what a checkpoint takes of it.

Source: Fujimoto et al. 2018 (arXiv:1802.09477), Algorithm 1, and the authors' later public code. ddpg.py is this file without
its three changes: twin critics, of which targets take the lesser; noise on the target's action; actor and targets once in
policy_delay updates. Actor and critics share one learning rate here, and nothing decays.

Where we differ, or leave a choice:
- Hidden layers are `policy.hidden`; all networks start as this program's policies do (policy.py).
- The actor acts by tanh also under policy.output = "clip", where the policy that is evaluated acts by clip.
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from esac_mpi import config as configuration
from esac_mpi.config import Config
from esac_mpi.envs import Env
from esac_mpi.learners import LearnerNotFinite, memory, training
from esac_mpi.learners.network import TANH_BACKWARD, Adam, Network, Operations, Pass, forward
from esac_mpi.learners.phase import Phase
from esac_mpi.learners.replay import Replay
from esac_mpi.learners.training import Streams
from esac_mpi.learners.transitions import Transitions
from esac_mpi.policy import Layout

CRITIC1, CRITIC2 = 17, 18  # which network initial weights are drawn for


class TD3(memory.Memory):
    """The TD3 learner: networks, Adam, replay and its count of training steps."""

    NAME = "TD3"

    def __init__(self, config: Config, layout: Layout, theta: np.ndarray, reserve: int = 0) -> None:
        """Take the initial actor `theta`, float32 [d]; draw the critics.

        While its state is held, phases may add `reserve` transitions.
        """
        self.device = memory.device(config.learner)
        self.seed, self.options, self._activation = config.seed, config.td3, config.policy.activation
        o, *hidden, a = layout.sizes
        self.replay = Replay(self.options.replay_capacity, o, a, reserve)
        self.env_steps = 0  # training steps ever
        self._actions = a

        where = self.device, torch.bfloat16 if config.learner.precision == "bf16" else torch.float32
        q = Layout((o + a, *hidden, 1))
        critics = [q.initial(config.seed, member) for member in (CRITIC1, CRITIC2)]
        self.actor, self.target_actor = (Network(layout, [theta], self._activation, *where) for _ in range(2))
        self.critic, self.target_critic = (Network(q, critics, "relu", *where) for _ in range(2))
        self.adam = {
            "actor": Adam(self.actor.values, self.actor.gradient, self.options.lr_td3),
            "critic": Adam(self.critic.values, self.critic.gradient, self.options.lr_td3),
        }
        self.targets = {"target_actor": self.target_actor, "target_critic": self.target_critic}
        parts = Parts(self.actor, self.critic, self.target_actor, self.target_critic, self.adam)
        self.update = Update(parts, self.options)

    @property
    def theta(self) -> np.ndarray:
        """A copy of the actor, float32 [d]."""
        return self.actor.values.cpu().numpy().copy()

    def phase(self, env: Env, k: int, episodes: int, steps: int, cut: bool = False) -> Phase:
        """Run `begin` to its end. Raises LearnerNotFinite."""
        return training.run(self.begin(env, k, episodes, steps, cut))

    def begin(self, env: Env, k: int, episodes: int, steps: int, cut: bool = False) -> Generator[None, None, Phase]:
        """Play at least `episodes` whole episodes and `steps` steps, and learn from them; see `training.begin`.

        Raises LearnerNotFinite.
        """
        phase = yield from training.begin(self, self._action, self._learn, env, k, episodes, steps, cut)
        self.check_finite()
        return phase

    def take(self, played: Sequence[tuple[np.ndarray, float, int]], k: int) -> Generator[None, None, Phase]:
        """Take over episodes that others played, and learn from them; see `training.take`. Raises LearnerNotFinite."""
        phase = yield from training.take(self, self._learn, played, k)
        self.check_finite()
        return phase

    def _action(self, actor: list[np.ndarray], observation: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a]: uniform in the first start_steps, then the actor's with Gaussian noise."""
        if self.env_steps < self.options.start_steps:
            return random.uniform(-1.0, 1.0, self._actions).astype(np.float32)
        noise = random.standard_normal(self._actions, dtype=np.float32)
        mean = np.tanh(forward(actor, self._activation, observation))
        action = np.clip(mean + np.float32(self.options.exploration_noise) * noise, -1, 1)
        if not np.isfinite(action).all():
            raise LearnerNotFinite(f"the actor's action is not finite at training step {self.env_steps}")
        return action

    def _learn(self, since: int, random: Streams) -> Generator[None, None, int]:
        """Make the updates due for the training steps after `since` and start_steps; return their number."""
        first = self.options.start_steps
        if len(self.replay) < self.options.batch_size:
            return 0
        updates = training.due(self.options.updates_per_step, max(since, first), max(self.env_steps, first))
        for _ in range(updates):
            self.replay.sample(random.sampling, self.update.rows)
            random.update.standard_normal(dtype=np.float32, out=self.update.noise)
            self.update.learn_critics()
            yield
            if self.adam["critic"].steps % self.options.policy_delay == 0:
                self.update.learn_actor()
            yield
        return updates


@dataclass(frozen=True)
class Parts:
    """What an update changes."""

    actor: Network
    critic: Network  # both of them
    target_actor: Network
    target_critic: Network
    adam: dict[str, Adam]  # actor, critic


class Update:
    """An update and its buffers, for batches of options.batch_size transitions.

    Before it, `rows` takes the transitions (transitions.py) and `noise` [batch, a] standard normal numbers, on the host. An
    update is `learn_critics` and, in one of policy_delay of them, `learn_actor`: forward and backward by hand, noted once
    (network.py). tests/test_td3.py holds it against the same formulas with autograd.
    """

    def __init__(self, parts: Parts, options: configuration.TD3) -> None:
        self.parts, self.options = parts, options
        o, a, batch = parts.actor.layout.sizes[0], parts.actor.layout.sizes[-1], options.batch_size
        like = parts.actor.values
        self.batch, self._transitions = batch, Transitions(like, batch, o, a)
        self._noise = like.new_empty(batch, a)
        self._host_noise = self._noise.cpu()  # on a CPU the same tensor
        self.rows, self.noise = self._transitions.rows, self._host_noise.numpy()
        self.measured = like.new_zeros(2)  # sums over the batch: squared errors of the critics, Q of the actor's own actions
        self.sums = torch.zeros(2, dtype=torch.float64, device=like.device)  # of `measured`, over updates
        self._action = like.new_empty(batch, a)
        self._first = parts.critic.member(0)
        self._actor_pass, self._critic_pass = Pass(parts.actor, batch), Pass(parts.critic, batch)
        self._first_pass = Pass(self._first, batch)
        self._critics, self._actor = Operations(), Operations()
        self._note_critics(self._critics)
        self._note_actor(self._actor)

    def start(self) -> None:
        """Forget what was measured; follow parameters that were changed from outside."""
        self.sums.zero_()
        for network in (self.parts.actor, self.parts.critic, self.parts.target_actor, self.parts.target_critic):
            network.refresh()

    def learn_critics(self) -> None:
        """Take the batch and the noise, and make the first part of an update."""
        self._transitions.move()
        if self._noise is not self._host_noise:
            self._noise.copy_(self._host_noise)
        self._critics.run()

    def learn_actor(self) -> None:
        """Make the second part of an update: actor and targets."""
        self._actor.run()

    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
        if not updates:
            return {}
        delay, made = self.options.policy_delay, self.parts.adam["critic"].steps
        actors = made // delay - (made - updates) // delay
        means = {"critic_loss": self.sums[0].item() / (updates * self.batch)}
        if actors:
            means["mean_q"] = self.sums[1].item() / (actors * self.batch)
            means["actor_loss"] = -means["mean_q"]
        return means

    def _note_critics(self, do: Operations) -> None:
        parts, options, batch = self.parts, self.options, self._transitions
        o = batch.observation.shape[1]
        mean = self._actor_pass.forward(do, parts.target_actor, batch.next_observation)
        do.note(torch.tanh, mean, out=self._action)
        smoothing = torch.empty_like(self._action)
        do.note(torch.mul, self._noise, options.policy_noise, out=smoothing)
        do.note(smoothing.clamp_, -options.noise_clip, options.noise_clip)
        do.note(self._action.add_, smoothing)
        do.note(self._action.clamp_, -1, 1)
        do.note(batch.following[:, o:].copy_, self._action)
        pair, taken = (x.expand(2, self.batch, -1) for x in (batch.following, batch.taken))
        q = self._critic_pass.forward(do, parts.target_critic, pair)[..., 0]
        lesser, backup, one = (torch.ones_like(batch.reward) for _ in range(3))
        do.note(torch.minimum, q[0], q[1], out=lesser)
        do.note(torch.sub, one, batch.terminated, out=backup)  # only termination ends the sum of rewards
        do.note(torch.addcmul, batch.reward, backup, lesser, value=options.gamma, out=backup)  # y of Algorithm 1

        error = self._critic_pass.forward(do, parts.critic, taken)
        do.note(error[..., 0].sub_, backup)
        do.note(torch.dot, error.view(-1), error.view(-1), out=self.measured[0])
        do.note(error.mul_, 2 / self.batch)
        self._critic_pass.backward(do, parts.critic, taken, error)
        do.note(parts.adam["critic"].step)
        do.note(parts.critic.refresh)
        do.note(self.sums[0].add_, self.measured[0])

    def _note_actor(self, do: Operations) -> None:
        parts, options, batch = self.parts, self.options, self._transitions
        o, a = batch.observation.shape[1], self._action.shape[1]
        mean = self._actor_pass.forward(do, parts.actor, batch.observation)
        do.note(torch.tanh, mean, out=self._action)
        do.note(batch.own[:, o:].copy_, self._action)
        q = self._first_pass.forward(do, self._first, batch.own)
        do.note(torch.sum, q[:, 0], 0, out=self.measured[1])

        delta = torch.full_like(q, -1 / self.batch)  # the loss is minus the mean of Q1
        first = self._first_pass.inputs_backward(do, self._first, delta)
        to_action = self._first.layers[0][0][-a:]  # [a, hidden]: from the first layer's sums back to the action
        by_action, by_mean = first.new_empty(a, self.batch), torch.empty_like(self._action)
        do.note(torch.mm, to_action, first.mT, out=by_action)
        do.note(by_mean.copy_, by_action.mT)
        do.note(TANH_BACKWARD, by_mean, self._action, grad_input=by_mean)
        self._actor_pass.backward(do, parts.actor, batch.observation, by_mean)
        do.note(parts.adam["actor"].step)
        do.note(parts.actor.refresh)
        for target, network in ((parts.target_actor, parts.actor), (parts.target_critic, parts.critic)):
            do.note(target.values.lerp_, network.values, options.tau)
            do.note(target.refresh)
        do.note(self.sums[1].add_, self.measured[1])
