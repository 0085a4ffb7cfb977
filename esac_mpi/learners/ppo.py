"""PPO, on rank 0: stable-baselines3's policy, losses and updates; our episodes and checkpoints.

Source: Schulman et al. 2017 (arXiv:1707.06347), as in Stable-Baselines3 (Raffin et al. 2021; extra
`baselines`). A phase is one rollout, collected here a step at a time in place of its
`collect_rollouts`, which cannot pause, and its `train()`, an epoch at a time. Random numbers'
addresses and counts are ours, too.

Where this differs from running that library alone, or leaves a choice:
- Initial weights are the library's own (orthogonal), drawn from our address; the other learners
  start as policy.py does.
- An episode carries on from one rollout to the next. It is a function of its seed and its actions:
  a checkpoint holds these, and a resume plays them again, uncounted.
- A step that cannot be learned from (unstable physics, a reward that is not finite) is counted and
  not stored; the row before it bootstraps, as at a time limit.
- Actions are what the task takes in [-1, 1]: draws beyond are clipped (as in the library), and so
  is the mean that is evaluated, whatever policy.output says.
- In discrete tasks the evaluated policy takes the choice of the largest output. theta holds the
  last layer LOGIT_SCALE times as large: a power of two, so that no bit of an output is lost and the
  largest stays the largest, and the cut at 1 is out of reach.
- action = "gaussian_argmax": a Gaussian of fixed standard deviation around the outputs; the largest
  draw is the choice, as in the ESAC authors' notebooks (whose outputs pass a tanh; here they are
  plain).
"""

import math
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import set_random_seed

from esac_mpi.config import Config
from esac_mpi.envs import Env, spaces, transition
from esac_mpi.host import log
from esac_mpi.learners import Start, base, gpu, training
from esac_mpi.learners.base import Learner
from esac_mpi.learners.network import assign
from esac_mpi.learners.ppo_rollout import Episode, RewardScale, Row
from esac_mpi.operators.kernels import count_in
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import LOGIT_SCALE, Layout
from esac_mpi.play.learner_phases import Phase, Steps

WEIGHTS = 19  # which network initial weights are drawn for
SAMPLING, SHUFFLING = 0, 1  # members of a phase's address
LOSSES = {
    "critic_loss": "value_loss",
    "actor_loss": "policy_gradient_loss",
    "entropy": "entropy_loss",
}  # Phase's name: SB3's
MOMENTS = {"moment1": "exp_avg", "moment2": "exp_avg_sq"}  # ours: Adam's in torch


class PPO(Learner):
    """PPO: the library's policy and Adam, the episode in progress and the training steps."""

    NAME = "PPO"
    _episode: Episode | None = None  # in progress

    def __init__(self, start: Start) -> None:
        """Draw the weights, but take an initial actor that is not zeros; no use for the reserve."""
        config, layout, discrete = start.config, start.layout, start.discrete
        super().__init__(start, config.ppo)
        self.device_name = gpu.device_name(self.device)  # without kernels of ours
        self._rewards = RewardScale() if config.ppo.reward_normalisation else None
        self._argmax = discrete and config.ppo.action == "gaussian_argmax"
        self._categorical = discrete and not self._argmax
        self._model = self._make_library_ppo(config, layout)
        self._choices = 2 * np.eye(layout.sizes[-1], dtype=np.float32) - 1
        policy = self._model.policy
        trunk = policy.mlp_extractor
        # weight and bias of each layer, input first
        self._mean = [*trunk.policy_net.parameters(), *policy.action_net.parameters()]
        self._parts = {
            "actor": list(self._mean),
            "critic": [*trunk.value_net.parameters(), *policy.value_net.parameters()],
        }
        self._scale = LOGIT_SCALE if discrete else 1.0
        if self._argmax:
            policy.log_std.requires_grad_(False)
        elif not discrete:
            self._parts["actor"].append(policy.log_std)
        if start.theta.any():
            self._take_theta(start.theta, layout)

    def _take_theta(self, theta: np.ndarray, layout: Layout) -> None:
        """Let the actor's mean, or its logits, be theta [d]; its standard deviation stays."""
        for parameter, view in zip(self._mean, layout.views(theta), strict=True):
            parameter.data.copy_(torch.from_numpy(view.copy()))
        for parameter in self._mean[-2:]:
            parameter.data.div_(self._scale)

    def _make_library_ppo(self, config: Config, layout: Layout) -> Any:
        """Return the library's PPO for tasks of this layout, without an environment."""
        options, (o, *hidden, a) = self.options, layout.sizes
        activation = torch.nn.ReLU if config.policy.activation == "relu" else torch.nn.Tanh
        shape: dict[str, Any] = {
            "net_arch": {"pi": hidden, "vf": hidden},
            "activation_fn": activation,
        }
        shape["log_std_init"] = math.log(
            options.argmax_std if self._argmax else options.initial_std
        )
        nothing: Any = None
        model = stable_baselines3.PPO(
            "MlpPolicy", nothing, options.lr_ppo, options.steps_per_generation, options.batch_size,
            1, options.gamma, options.gae_lambda, options.clip_range,
            ent_coef=options.entropy_coefficient, vf_coef=options.value_coefficient,
            max_grad_norm=options.max_grad_norm, policy_kwargs=shape, device=self.device,
            seed=integer(config.seed, Purpose.INIT, member=WEIGHTS), _init_setup_model=False,
        )  # fmt: skip
        model.observation_space, model.n_envs = spaces.observations(o), 1
        model.action_space = spaces.Discrete(a) if self._categorical else spaces.actions(a)
        model._setup_model()
        model.set_logger(Logger(None, []))
        return model

    @property
    def theta(self) -> np.ndarray:
        """A copy of the actor's mean, or of its logits, float32 [d]."""
        tensors = [p.detach().cpu().numpy() for p in self._mean]
        scaled = [*tensors[:-2], *(np.float32(self._scale) * tensor for tensor in tensors[-2:])]
        return np.concatenate([tensor.ravel() for tensor in scaled])

    @property
    def updates(self) -> int:
        """Minibatches ever learned from: Adam's steps."""
        return _steps(self._model.policy.optimizer, self._parts["actor"])

    def begin(
        self,
        env: Env,
        k: int,
        episodes: int,
        steps: int,
        cut: bool = False,
        sums: np.ndarray | None = None,
        every: int = 0,
    ) -> Steps:
        """Take exactly `steps` steps and learn from them; yield after each step and epoch.

        Whatever `episodes`, `cut` and `every` say. The episode in progress carries on, also into
        the next phase: between phases `env` is the learner's alone. In another environment its
        steps so far are played again. See Learner.
        """
        self.standardise(sums)
        returns: list[float] = []
        before, losses = self.updates, []
        try:
            yield from self._take_up(env)
            set_random_seed(integer(self.seed, Purpose.LEARNER, k, SAMPLING))
            rows = yield from self._collect(env, k, steps, returns)
            if rows:
                self._model.rollout_buffer = self._buffer(rows)
            for epoch in range(self.options.epochs if rows else 0):
                set_random_seed(integer(self.seed, Purpose.LEARNER, k, SHUFFLING, epoch))
                self._model.train()
                losses.append(
                    [self._model.logger.name_to_value[f"train/{name}"] for name in LOSSES.values()]
                )
                yield True
        except ValueError as error:  # a distribution of nan
            self.check_finite()
            if "constraint" in str(error):
                base.refuse(self.NAME, ["actions"], self.env_steps)
            raise
        means = dict(zip(LOSSES, np.mean(losses, axis=0).tolist(), strict=True)) if losses else {}
        self.check_finite(means)
        means["entropy"] = -means.get("entropy", math.nan)
        return Phase.summed_up(steps, returns, self.updates - before, **means)

    def _take_up(self, env: Env) -> Generator[bool, None, None]:
        """Bring `env` to where the episode in progress stands, replaying it if it is not there.

        Where it ends sooner than it did, as it may where bits differ (another CPU), a new one
        begins; what was learned stays.
        """
        episode = self._episode
        if episode is None or episode.env is env:
            return
        episode.observation = env.reset(episode.seed)
        episode.episodic_return = 0.0
        episode.discounted = 0.0
        for action in episode.actions:
            answer = transition(env, action)
            if answer is None or answer[2] or answer[3]:
                log.warn(
                    f"{env.id}: the episode of seed {episode.seed} ends sooner "
                    "when it is played again: a new one begins"
                )
                self._episode = None
                return
            episode.observation, reward, *_ = answer
            episode.earn(reward, self.options.gamma)
            yield False
        episode.env = env

    def _generators(self) -> list[torch.Tensor]:
        """Return the states of torch's generators that the library may use: CPU and device."""
        on_device = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        return [torch.get_rng_state(), *on_device]

    def _draw_on(self, states: list[torch.Tensor]) -> None:
        """Let torch's generators go on from such states."""
        torch.set_rng_state(states[0])
        for state in states[1:]:
            torch.cuda.set_rng_state(state, self.device)

    def _collect(
        self, env: Env, k: int, steps: int, returns: list[float]
    ) -> Generator[bool, None, list[Row]]:
        """Take `steps` steps; return the rows to learn from.

        returns: gets each episode's return (nan: unstable).
        """
        policy, rows = self._model.policy, list[Row]()
        policy.set_training_mode(False)
        # the library draws from torch's own generators, which others may use too
        random = self._generators()
        for _ in range(steps):
            episode = self._episode = self._episode or self._start_episode(env, k, returns)
            observation = self._standardise(episode.observation)[None].copy()
            if self.seen is not None:
                count_in(self.seen, episode.observation)
            self._draw_on(random)
            with torch.no_grad():
                drawn, value, log_prob = policy(torch.as_tensor(observation, device=self.device))
            random, drawn = self._generators(), drawn.cpu().numpy()
            start, action = not episode.actions, self._action(drawn)
            self.env_steps += 1
            answer = transition(env, action)
            if answer is None:
                if not start and rows:
                    rows[-1] = rows[-1]._replace(reward=self._bootstrap(rows[-1].reward, value))
                episode.episodic_return, ended = math.nan, True
            else:
                episode.observation, reward, terminated, truncated = answer
                episode.actions.append(action)
                episode.earn(reward, self.options.gamma)
                if self._rewards is not None:
                    reward = self._rewards.scale(reward, episode)
                if truncated and not terminated:
                    reward = self._bootstrap(reward, self._value(episode.observation))
                rows.append(Row(observation, drawn.reshape(1, -1), reward, start, value, log_prob))
                ended = terminated or truncated
            if ended:
                returns.append(episode.episodic_return)
                self._episode = None
            yield False
        return rows

    def _start_episode(self, env: Env, k: int, returns: list[float]) -> Episode:
        """Return a new episode."""
        while (start := training.start_episode(env, self.seed, k, returns)) is None:
            pass
        return Episode(start[0], env, observation=start[1])

    def _action(self, drawn: np.ndarray) -> np.ndarray:
        """Turn what the policy drew into an action, float32 [a] in [-1, 1]."""
        if self._categorical:
            return self._choices[int(drawn[0])]
        return (
            self._choices[int(drawn[0].argmax())] if self._argmax else np.clip(drawn[0], -1.0, 1.0)
        )

    def _value(self, observation: np.ndarray) -> torch.Tensor:
        """Estimate the value of an observation [o] by the critic, [1, 1]."""
        with torch.no_grad():
            seen = self._standardise(observation)[None]
            return self._model.policy.predict_values(torch.as_tensor(seen, device=self.device))

    def _standardise(self, observation: np.ndarray) -> np.ndarray:
        """Return an observation [o] as this phase sees it."""
        return observation if self.normaliser is None else self.normaliser(observation)

    def _bootstrap(self, reward: float, value: torch.Tensor) -> float:
        """Return a reward plus the discounted value [1, 1] after it, in float32 as the library."""
        return float(np.float32(reward) + np.float32((self.options.gamma * value).item()))

    def _buffer(self, rows: list[Row]) -> RolloutBuffer:
        """Return the library's buffer of a rollout, advantages and returns computed."""
        model, episode = self._model, self._episode
        spaces = model.observation_space, model.action_space
        buffer = RolloutBuffer(len(rows), *spaces, self.device, model.gae_lambda, model.gamma)
        for row in rows:
            earned = np.array([row.reward]), np.array([row.start])
            buffer.add(row.observation, row.action, *earned, row.value, row.log_prob)
        last = torch.zeros(1, 1) if episode is None else self._value(episode.observation)
        buffer.compute_returns_and_advantage(last, np.array([episode is None]))
        return buffer

    def _arrays(self) -> dict[str, np.ndarray]:
        saved, optimizer = {}, self._model.policy.optimizer
        for name, part in self._parts.items():
            saved[f"{name}_values"] = _flat(part)
            for moment, key in MOMENTS.items():
                saved[f"{name}_{moment}"] = _flat(
                    [optimizer.state[p].get(key, torch.zeros_like(p)) for p in part]
                )
            saved[f"{name}_steps"] = np.array(_steps(optimizer, part))
        if self._rewards is not None:
            saved["reward_spread"] = self._rewards.array()
        episode, size = self._episode, self._choices.shape[0]
        saved["episode_seed"] = np.array(-1 if episode is None else episode.seed)
        saved["episode_actions"] = np.array(
            [] if episode is None else episode.actions, np.float32
        ).reshape(-1, size)
        return saved

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        state = self._model.policy.optimizer.state
        for name, part in self._parts.items():
            _fill([p.data for p in part], saved[f"{name}_values"])
            for p in part:
                state[p] = {key: torch.zeros_like(p) for key in MOMENTS.values()}
                state[p]["step"] = torch.tensor(float(saved[f"{name}_steps"]))
            for moment, key in MOMENTS.items():
                _fill([state[p][key] for p in part], saved[f"{name}_{moment}"])
        if self._rewards is not None:
            self._rewards.load(saved["reward_spread"])
        seed, actions = int(saved["episode_seed"]), saved["episode_actions"]
        self._episode = (
            None if seed < 0 else Episode(seed, actions=[action.copy() for action in actions])
        )

    def fitting(self, saved: Mapping[str, np.ndarray], before: Config) -> dict[str, np.ndarray]:
        """Name what `load` takes of another run's PPO, but its episode. Raises ValueError.

        A critic learnt from rewards on its run's scale; a spread that was set anew has to hold.
        """
        own = self.arrays()
        for name in ("reward_normalisation", "initial_std"):
            if getattr(before.ppo, name) != getattr(self.options, name):
                raise ValueError(f"{name} was another")
        episode = {name: own[name] for name in own if name.startswith("episode")}
        return base.fit(own, {**saved, **episode})

    def check_finite(self, losses: Mapping[str, float] | None = None) -> None:
        """Raise LearnerNotFinite unless the parameters and a phase's losses are finite."""
        bad = [
            name
            for name, part in self._parts.items()
            if not all(torch.isfinite(p).all() for p in part)
        ]
        bad += [] if np.isfinite(list((losses or {}).values())).all() else ["losses"]
        base.refuse(self.NAME, bad, self.env_steps)


def _flat(tensors: list[torch.Tensor]) -> np.ndarray:
    """Return tensors as one float32 vector."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).cpu().numpy().copy()


def _fill(tensors: list[torch.Tensor], values: np.ndarray) -> None:
    """Put `_flat`'s vector back."""
    flat = torch.empty(sum(tensor.numel() for tensor in tensors), device=tensors[0].device)
    assign(flat, values)
    for tensor, piece in zip(
        tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True
    ):
        tensor.copy_(piece.view_as(tensor))


def _steps(optimizer: torch.optim.Optimizer, part: list[torch.Tensor]) -> int:
    """Return the steps that Adam has made with a part."""
    return int(optimizer.state[part[0]].get("step", 0))
