"""Learners' common base: start, phases, and what a checkpoint takes of them and how it is held."""

import math
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esac_mpi import config as configuration
from esac_mpi.comm import contracts
from esac_mpi.envs import LARGEST, Env, transition
from esac_mpi.learners import LearnerNotFinite, Start, gpu, training
from esac_mpi.learners.chunks import Chunks
from esac_mpi.learners.explorers import Explorer, Taken
from esac_mpi.learners.network import Adam, Network, Operations, assign
from esac_mpi.learners.replay import Replay
from esac_mpi.learners.training import Streams
from esac_mpi.learners.updates import Critic, Update
from esac_mpi.operators.kernels import count_in, finite
from esac_mpi.operators.policy import Layout, Normaliser
from esac_mpi.play.counters import least_variance
from esac_mpi.play.learner_phases import Phase, Steps


def fit(own: Mapping[str, np.ndarray], saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return another learner's arrays of one's own names. Raises ValueError: missing, misshapen."""
    for name, array in own.items():
        if name not in saved:
            raise ValueError(f"it has no {name}")
        if saved[name].shape != array.shape:
            raise ValueError(f"{name} {list(saved[name].shape)} is {list(array.shape)} here")
    return {name: saved[name] for name in own}


def refuse(name: str, bad: Sequence[str], env_steps: int) -> None:
    """Raise LearnerNotFinite if there are `bad` parts of a learner."""
    if bad:
        raise LearnerNotFinite(
            f"the {name} learner's {', '.join(bad)} are no longer finite "
            f"at training step {env_steps}"
        )


class Learner(contracts.Learner):
    """What every learner is: an actor that learns in phases, and can be held and stored."""

    replay: Replay | None = None  # None: it learns from nothing older than its rollout
    env_steps = 0  # training steps ever
    # by which a phase sees observations; its replay has them as they were
    normaliser: Normaliser | None = None
    # sums over the observations that a phase acted on, float64 [3, o], where they are asked for
    seen: np.ndarray | None = None
    _held: tuple[dict[str, np.ndarray], Replay | None] | None = None

    def __init__(self, start: Start, options: Any) -> None:
        """Take what all have in common; options: the learner's table. Raises NoDevice."""
        table = start.config.learner
        torch.set_num_threads(1 if table.kernels == "compiled" else table.threads)
        self.device = gpu.choose(table)
        self.device_name = gpu.device_name(self.device, table.kernels)
        self.seed, self.options = start.config.seed, options
        self._least = least_variance(start.config)

    def standardise(self, sums: np.ndarray | None) -> None:
        """Standardise observations by sums before a phase, float64 [3, o], and start its own.

        None: leave them as they are.
        """
        self.normaliser = None if sums is None else Normaliser.of(sums, self._least)
        self.seen = None if sums is None else np.zeros_like(sums)

    @property
    def stored_replay(self) -> Replay | None:
        """The replay that belongs to `arrays`: as it is, or as it was at `hold`."""
        return self._held[1] if self._held else self.replay

    def hold(self) -> None:
        """Freeze `arrays` and `stored_replay` as they are now, until `release`."""
        self.release()
        self._held = self.arrays(), None if self.replay is None else self.replay.hold()

    def release(self) -> None:
        """Let `arrays` and `stored_replay` be current again."""
        self._held = None
        if self.replay is not None:
            self.replay.release()

    def arrays(self) -> dict[str, np.ndarray]:
        """Copy the learner's state but its replay, as it is or as it was at `hold`."""
        if self._held:
            return {name: array.copy() for name, array in self._held[0].items()}
        return {**self._arrays(), "env_steps": np.array(self.env_steps)}

    @abstractmethod
    def _arrays(self) -> dict[str, np.ndarray]:
        """Return copies of all that makes the learner but its replay and its steps."""

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` returned. Raises ValueError for another learner's."""
        self.release()
        expected = self.arrays().keys()
        if saved.keys() != expected:
            raise ValueError(f"learner arrays must be {sorted(expected)}, got {sorted(saved)}")
        self._load(saved)
        self.env_steps = int(saved["env_steps"])

    @abstractmethod
    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `_arrays` returned."""


class GradientLearner(Learner):
    """An actor and its critic, learning from a replay: SAC, TD3, DDPG, ERL's and CEM-RL's.

    Each makes its networks, sets `actor`, `critic`, `adam`, `targets` and `update`, and calls
    `ready`.
    """

    replay: Replay
    actor: Network
    critic: Critic  # all of them
    adam: dict[str, Adam]  # by name of what it steps
    targets: Mapping[str, Network | Critic]  # networks that follow others, by name
    update: Update
    chunks: Chunks | None = None  # how a GPU makes updates; None: one by one, as a CPU does

    def __init__(self, start: Start, options: Any) -> None:
        """Take what all have in common; options: the learner's table."""
        super().__init__(start, options)
        config, (o, *_, a) = start.config, start.layout.sizes
        self.compiled = self.device.type == "cpu" and config.learner.kernels == "compiled"
        self._activation, self._actions = config.policy.activation, a
        self._products = torch.bfloat16 if config.learner.precision == "bf16" else torch.float32
        self.replay = Replay(options.replay_capacity, o, a, start.reserve, start.rows)

    def ready(self) -> None:
        """Take up the way in which the device makes updates.

        Raises NoDevice where it has no room for what that takes.
        """
        if self.device.type == "cuda":
            what = (
                f"{self.NAME}'s replay of {len(self.replay.ring):,} transitions "
                "and what updates draw"
            )
            # which a capture makes, and lets go of
            copies = sum(tensor.nbytes for tensor in self.carried())
            gpu.refuse_too_large(Chunks.bytes(self) + copies, what)
            self.chunks = Chunks(self, gpu.Cuda())

    def due(self) -> tuple[Operations, ...]:
        """List the parts of the next update: the actor's part once in update.delay of them."""
        made, lists = self.adam["critic"].steps + 1, self.update.lists
        return lists if made % self.update.delay == 0 else lists[:1]

    def carried(self) -> list[Tensor]:
        """List what an update changes and a later one starts from."""
        adams = self.adam.values()
        stepped = [t for each in adams for t in (each.values, each.moment1, each.moment2)]
        return [*stepped, *(network.values for network in self.targets.values()), self.update.sums]

    def network(self, sizes: tuple[int, ...], *members: int) -> Network:
        """Return a network that judges: critics or values, each drawn for its number."""
        layout = Layout(sizes, self.options.critic_layer_norm)
        drawn = [layout.initial(self.seed, member) for member in members]
        return Network(layout, drawn, "relu", self.device, self._products)

    def critics(self, layout: Layout, *members: int) -> tuple[Network, Network]:
        """Make Q critics, each drawn for its number, and their targets; layout: the policy's."""
        o, *hidden, a = layout.sizes
        sizes = (o + a, *hidden, 1)
        return self.network(sizes, *members), self.network(sizes, *members)

    def actor_network(self, layout: Layout, theta: np.ndarray) -> Network:
        """Return a network that acts, of these parameters."""
        return Network(layout, [theta], self._activation, self.device, self._products)

    @property
    def theta(self) -> np.ndarray:
        """A copy of the actor, float32 [d], in the order of the policy's layout."""
        return self.actor.values.cpu().numpy().copy()

    def critic_vector(self) -> np.ndarray:
        """Return a copy of the first critic, float32 [d], as critics.py takes it."""
        return self.critic.vector(0)

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
        """Play episodes into the replay, and make the updates due for their steps; see Learner."""
        self.standardise(sums)
        random, first, updates = training.streams(self.seed, k), self.env_steps, 0
        returns: list[float] = []
        lengths: list[int] = []  # of those that are finite
        self.update.start(self.normaliser)
        every = 1 if self.options.interleaved else every
        learned = first  # steps whose updates are made
        exploration = random.exploration
        for learns in self._play(
            env, k, exploration, episodes, steps, cut, every, returns, lengths
        ):
            yield False
            if learns:
                updates += yield from self._learn(learned, random)
                learned = self.env_steps
        updates += yield from self._learn(learned, random)
        self.check_finite()
        length = float(np.mean(lengths)) if lengths else math.nan
        means = {"episodic_length": length, **self.update.means(updates)}
        return Phase.summed_up(self.env_steps - first, returns, updates, **means)

    def take(
        self,
        played: Sequence[tuple[np.ndarray, float, int]],
        k: int,
        sums: np.ndarray | None = None,
    ) -> Steps:
        """Take over episodes that others played, and learn from them, as `begin` from its own.

        played: of each episode its transitions as rows [n, width], its return (nan: unstable) and
        its steps. Raises LearnerNotFinite.
        """
        self.standardise(sums)
        random, first = training.streams(self.seed, k), self.env_steps
        self.update.start(self.normaliser)
        for rows, _, steps in played:
            self.replay.add_rows(rows)
            if self.seen is not None:
                for observation in rows[:, self.replay.columns.observation]:
                    count_in(self.seen, observation)
            self.env_steps += steps
        updates = yield from self._learn(first, random)
        self.check_finite()
        returns = [episodic_return for _, episodic_return, _ in played]
        means = self.update.means(updates)
        return Phase.summed_up(self.env_steps - first, returns, updates, **means)

    def _play(
        self, env: Env, k: int, random: np.random.Generator,
        episodes: int, steps: int, cut: bool, every: int,
        returns: list[float], lengths: list[int],
    ) -> Iterator[bool]:  # fmt: skip
        """Play the episodes of a phase into the replay; yield, a step, whether updates follow it.

        every: steps between updates of the actor; 0: it has none before the end. returns: gets each
        episode's return (nan: unstable). lengths: gets the steps of those whose return is finite.
        """
        first, stop = self.env_steps, self.env_steps + steps
        explorer = self._explorer(env, random)
        run = None if every == 1 else explorer.run  # of one step, it costs more than a step
        while self.env_steps < stop or (len(returns) < episodes and not cut):
            start = training.start_episode(env, self.seed, k, returns)
            if start is None:
                continue
            (_, observation), total, ended, began = start, 0.0, False, self.env_steps
            while not ended and not (cut and self.env_steps == stop):
                if run is None or self.env_steps < self.options.start_steps:
                    rewards, observation, ended = self._step(env, explorer, observation)
                else:
                    made = self.env_steps - first
                    most = began + env.horizon - self.env_steps
                    most = min(most, steps - made) if cut else most
                    most = min(most, every - made % every) if every else most
                    rewards, observation, ended = self._take_over(env, *run(observation, most))
                    ended = ended or self.env_steps == began + env.horizon
                for reward in rewards:
                    total += reward
                learns = every > 0 and (self.env_steps - first) % every == 0
                yield learns
                if learns:
                    explorer.refresh()
            if ended:
                returns.append(total)
                if math.isfinite(total):
                    lengths.append(self.env_steps - began)

    def _explorer(self, env: Env, random: np.random.Generator) -> Explorer:
        """Return what draws the actor's actions in a phase."""
        return Explorer(self.actor, self._activation, self.normaliser, self._explored, random)

    def _step(self, env: Env, explorer: Explorer, observation: np.ndarray) -> Taken:
        """Take a step, at random among the first start_steps, and keep its transition."""
        if self.env_steps < self.options.start_steps:
            action = explorer.random.uniform(-1.0, 1.0, self._actions).astype(np.float32)
        else:
            action = explorer(observation)
        self.env_steps += 1
        self._check_action(action)
        if self.seen is not None:
            count_in(self.seen, observation)
        answer = transition(env, action)
        if answer is None:
            return Taken([math.nan], observation, True)
        next_observation, reward, terminated, truncated = answer
        self.replay.add(observation, action, reward, next_observation, terminated)
        return Taken([reward], next_observation, terminated or truncated)

    def _take_over(self, env: Env, run: Any, actions: np.ndarray, rows: np.ndarray) -> Taken:
        """Count steps of the closed loop, and keep their transitions, rows [n, width]."""
        self.env_steps += len(actions)
        self._check_action(actions)
        if self.seen is not None:
            for row in run.observations[: len(actions)]:
                count_in(self.seen, row)
        self.replay.add_rows(rows)
        rewards = [reward if abs(reward) <= LARGEST else math.nan for reward in run.rewards]
        observation, ended = run.observations[-1], run.terminated
        if env.unstable or not finite(observation):
            rewards[-1], ended = math.nan, True
        return Taken(rewards, observation, ended)

    def _check_action(self, action: np.ndarray) -> None:
        """Raise LearnerNotFinite if an action, or the last of some, is not finite."""
        if not finite(action):
            raise LearnerNotFinite(
                f"the actor's action is not finite at training step {self.env_steps - 1}"
            )

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return the output's tanh, in [-1, 1], float32 [a]: an action without noise."""
        return np.tanh(output)

    def _updates_due(self, since: int) -> int:
        """Count the updates that the training steps after `since` and start_steps call for."""
        first, rate = self.options.start_steps, self.options.updates_per_step
        return training.count_due(rate, max(since, first), max(self.env_steps, first))

    def _learn(self, since: int, random: Streams) -> Generator[int, None, int]:
        """Make the updates due for the steps after `since`, a part at a time; return their number.

        There is none before the replay holds a batch.
        """
        enough = len(self.replay) >= self.options.batch_size
        updates = self._updates_due(since) if enough else 0
        yield from self._make_updates(updates, random)
        return updates

    def _make_updates(
        self, updates: int, random: Streams, added: int | None = None, newest: int | None = None
    ) -> Generator[int, None, None]:
        """Make updates, a part at a time; added, newest: as of `Replay.places`."""
        if self.chunks:
            yield from self.chunks.make(updates, random, added, newest)
            return
        update = self.update
        for first in range(0, updates, update.ahead):
            count = min(update.ahead, updates - first)
            update.draw(self.replay, random, count, added, newest)
            for i in range(count):
                due = self.due()
                update.take(i)
                update.learn_critic()
                yield True
                if len(due) > 1:
                    update.learn_actor()
                yield True

    def _arrays(self) -> dict[str, np.ndarray]:
        saved = {
            f"{name}_{part}": array
            for name, each in self.adam.items()
            for part, array in each.arrays().items()
        }
        followers = {name: each.values.cpu().numpy().copy() for name, each in self.targets.items()}
        return {**saved, **followers}

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        for name, each in self.adam.items():
            each.load({part: saved[f"{name}_{part}"] for part in each.arrays()})
        for name, network in self.targets.items():
            assign(network.values, saved[name])

    def fitting(
        self, saved: Mapping[str, np.ndarray], before: configuration.Config
    ) -> dict[str, np.ndarray]:
        """Pick what `load` takes of another run's learner. Raises ValueError, naming misfits."""
        return fit(self.arrays(), saved)

    def check_finite(self) -> None:
        """Raise LearnerNotFinite unless all parameters and the phase's summed losses are finite."""
        followers = {name: network.values for name, network in self.targets.items()}
        stepped = {name: each.values for name, each in self.adam.items()}
        parts = {"losses": self.update.sums, **followers, **stepped}
        bad = [name for name, tensor in parts.items() if not torch.isfinite(tensor).all()]
        refuse(self.NAME, bad, self.env_steps)
