"""A small ESAC, and an ES, whose noise, rewards and learner a test can work out by hand."""

import numpy as np
from conftest import CORRECTED
from words import named

from esac_mpi import config
from esac_mpi.algorithms import es, esac
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Layout
from esac_mpi.play.epsilon import make as make_epsilon
from esac_mpi.play.learner_phases import Phase
from esac_mpi.play.params import Params, make_policy
from esac_mpi.play.rollout import play

OWN = {"esac.population_size": 10, "esac.sigma": 0.3, "esac.lr_es": 0.05}
SETTINGS = {**CORRECTED, **OWN, "policy.hidden": (140, 140)}
LAYOUT = Layout((3, 140, 140, 3))  # two blocks of parameters


class Track:
    """Observe [3], act [3]: the reward is -|action - observation|^2, so all returns differ."""

    id, observation_size, action_size, horizon, unstable = "Track", 3, 3, 10, False
    low, high = -np.ones(3, np.float32), np.ones(3, np.float32)

    def reset(self, seed):
        self.random, self.left = np.random.default_rng(seed), 10
        self.steps = getattr(self, "steps", 0)
        self.observation = self.random.uniform(-1, 1, 3).astype(np.float32)
        return self.observation

    def step(self, action):
        reward = -float(np.square(action - self.observation).sum())
        self.observation = self.random.uniform(-1, 1, 3).astype(np.float32)
        self.left -= 1
        self.steps += 1
        return self.observation, reward, False, self.left == 0


class Fragile(Track):
    """Track whose rewards are `broken` in the episodes of all seeds but the `whole` ones."""

    broken = np.nan
    whole: frozenset[int] | None = None

    def reset(self, seed):
        self.breaks = self.whole is not None and seed not in self.whole
        return super().reset(seed)

    def step(self, action):
        observation, reward, terminated, truncated = super().step(action)
        return observation, self.broken if self.breaks else reward, terminated, truncated


class Teacher:
    """A learner whose phases move theta to where the test wants it."""

    NAME = "SAC"

    def __init__(self, theta):
        self.theta, self.phases = theta, []

    def begin(self, env, k, episodes, steps, cut=False, sums=None, every=0):
        yield
        self.phases.append(k)
        return Phase(env_steps=steps, episodes=episodes, gradient_updates=7)

    def hold(self):
        self.held = True

    def release(self):
        self.held = False


def configured(table: str, base, settings):
    """Return checked settings; without a table, section__field, a field is one of `table`'s."""
    options = config.amend(config.Config(), {**base, **named(table, **settings)})
    config.check(options)
    return options


def make(world, **settings):
    options = configured("esac", SETTINGS, settings)
    params = Params(options, LAYOUT, 10, make_epsilon(options.esac, options.seed, LAYOUT, world))
    return params, esac.init(params, world), Track()


def make_es(world, layout=LAYOUT, **settings):
    hidden = {"policy.hidden": layout.sizes[1:-1], "policy.linear": False}
    options = configured("es", {"algorithm": "es", "es.reward_shift": 0.0, **hidden}, settings)
    params = Params(options, layout, 4, make_epsilon(options.es, options.seed, layout, world))
    return params, es.init(params, world)


def epsilon(k, slot):
    parts = [(b, part.stop - part.start) for b, part in noise.blocks(LAYOUT.d)]
    return np.concatenate([noise.normal(0, Purpose.MUTATION, k, slot, b, n) for b, n in parts])


class Before:
    """What a generation starts from, and the members that it will have."""

    def __init__(self, state, pairs=True):
        vectors = [state.theta_es.copy(), state.theta_sac.copy(), *state.children.copy()]
        self.theta, self.sac, *_ = vectors
        self.m, self.v = state.adam_m.copy(), state.adam_v.copy()
        self.sigma, self.k, self.kinds = state.sigma, state.generation + 1, state.parents.tolist()
        self.parents = [vectors[kind] for kind in self.kinds]
        signs = (1, -1) if pairs else (1,)
        self.members = [(slot, sign) for slot in range(len(self.kinds)) for sign in signs]

    def offspring(self, sigmas=None):
        """Return parent + sign * sigma * eps of every member; sigmas: of each slot."""
        sigmas, made = sigmas or [self.sigma] * len(self.kinds), []
        for slot, sign in self.members:
            step = np.float32(sign * sigmas[slot]) * epsilon(self.k, slot)
            made.append(self.parents[slot] + step)
        return made

    def gradient(self, values, slots=None):
        """Return line 11's sum of shaped values over the members of `slots`, over n sigma."""
        of_members = zip(values, self.members, strict=True)
        chosen = [(v, slot, sign) for v, (slot, sign) in of_members if not slots or slot in slots]
        total = sum(value * sign * epsilon(self.k, slot) for value, slot, sign in chosen)
        return total / (len(chosen) * self.sigma)


def returns(params, env, k, offspring) -> np.ndarray:
    """Play the episodes of generation k's members [n, d]; return what they pay [n]."""
    policy, found = make_policy(params, env), np.zeros(len(offspring))
    for i, theta in enumerate(offspring):
        start = noise.integer(0, Purpose.EPISODE, k, i)
        found[i] = play(env, policy.set(theta), start).episodic_return
    return found


def advance(world, params, state, env, generations=1, learner=None):
    for _ in range(generations):
        row, _ = esac.generation(params, state, world, env, learner)
    return row
