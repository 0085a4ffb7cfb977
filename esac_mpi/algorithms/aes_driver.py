"""AES-RL's decisions, on rank 0. Its loop, of which take_result() is one turn:

1. Take the next result of the agenda: by virtual time, or as they come in.
2. An individual's moves the distribution (aes_moves), and its transitions enter the replay.
3. Its worker gets another individual, drawn from the distribution as it is now, trained or not.
4. The critic's is what individuals that are given out from now on see.
5. If individuals have had more steps than the critic updates, the critic gets its next turn.
"""

import numpy as np

from esac_mpi.algorithms.aes_moves import move
from esac_mpi.algorithms.aes_state import IDLE, Now, has_room, refuse_overwritten
from esac_mpi.algorithms.aes_work import TIMES, Order, Result, duration, list_times
from esac_mpi.comm.virtual_time import Agenda, Arrival, Task
from esac_mpi.host.stop import EndsRun
from esac_mpi.operators import distribution, noise, update_rules
from esac_mpi.operators.distribution import Gaussian
from esac_mpi.operators.noise import Purpose
from esac_mpi.play.transitions import read_ring, write_ring


class Driver:
    """Rank 0's record of tasks beside its state: the agenda, and what nodes have of the replay."""

    def __init__(self, now: Now) -> None:
        """Take up the tasks that the state has; give every worker its first one in a new run."""
        assert now.learner is not None
        self.params = now.params
        self.state = now.state
        self.world = now.world
        self.learner = now.learner
        aes, state = now.params.config.aes_rl, now.state
        self.critic = aes.workers  # its worker, after the others
        self.agenda = Agenda(self._may_be_told, state.time)
        if aes.order != "virtual":  # as results arrive, or a record lists them
            self.agenda = Arrival(state.due, bool(aes.replay), self._may_be_told)
        self._times: list[tuple[float, ...]] = []  # TIMES of tasks told in this generation
        # transitions that each node's ring has
        self._brought = np.full(self.world.nodes, self.state.transitions)
        for worker in range(self.critic):
            if self.state.task_number[worker] == IDLE:
                self._give(worker, 0)
            else:
                self._schedule(worker)
        if self.state.task_number[self.critic] != IDLE:
            self._schedule(self.critic)
        refuse_overwritten(self.params.config, self.state, 0, self._reading().values())

    def _reading(self) -> dict[int, int]:
        """Return {worker: transitions that its open task reads}, of tasks with updates."""
        return {task.worker: task.order.held for task in self.agenda if task.order.updates}

    def _may_be_told(self, task: Task) -> bool:
        """Tell whether a result's transitions leave those in the ring that open tasks read."""
        read, coming = self._reading(), 0 if task.order.theta is None else len(task.result.rows)
        own = read.pop(task.worker, None)
        return has_room(
            self.params.config, self.params.horizon, self.state, coming, own, read.values()
        )

    def take_result(self, task: Task) -> bool:
        """Take a task's result and give out the next tasks; return whether the generation is full.

        Raises what ends the run.
        """
        state = self.state
        if isinstance(task.result, EndsRun):
            raise task.result
        if isinstance(self.agenda, Arrival):
            state.due = self.agenda.due
        self._times.append(list_times(task, self.world.clock()))
        state.task_number[task.worker] = IDLE
        state.time = task.start + task.progress
        if task.worker == self.critic:
            self._take_critic(*task.result)
        else:
            self._take_individual(task, task.result)
            self._give(task.worker, state.time)
        self._teach_if_due()
        return state.arrived == len(state.row)

    def take_times(self, start: float) -> dict[str, np.ndarray]:
        """Take this generation's task times as timing columns, moments as after `start` [s]."""
        found = dict(zip(TIMES, np.array(self._times).T, strict=True))
        self._times = []
        return {
            f"task_{name}": found[name] - start * (name in ("start", "end", "told"))
            for name in TIMES
        }

    def complete_order(self, order: Order, rank: int) -> Order:
        """Add to an order the transitions that the rank's node lacks."""
        node, state = self.world.node_of(rank), self.state
        first = int(self._brought[node])
        if node == self.world.node or order.held <= first:
            return order
        self._brought[node] = order.held
        # by order of arrival one that reads older ones may be begun after this
        read = [order.held, *self._reading().values()]
        oldest = max(first, min(read) - self.params.config.aes_rl.replay_capacity)
        return order._replace(first=first, rows=read_ring(state.replay, oldest, order.held))

    def _give(self, worker: int, start: int) -> None:
        """Draw a worker's next individual, from the distribution as it is."""
        state, aes, number = self.state, self.params.config.aes_rl, self.state.given
        taught = state.counters.gradient_updates > 0
        random = noise.generator(self.params.config.seed, Purpose.SELECTION, number)
        learns = taught and update_rules.is_trained(
            state.trained, state.drawn, aes.rl_gain, aes.rl_share, random
        )
        state.trained += learns
        state.drawn += taught and not learns
        state.given += 1
        state.task_number[worker] = number
        state.task_start[worker] = start
        state.task_updates[worker] = int(state.lengths.sum()) if learns else 0
        state.task_held[worker] = state.transitions if learns else 0
        state.task_told[worker] = state.told
        reused = aes.mean_reused and aes.mean_rule != "rank_oldest" and state.mean_known
        state.task_mean[worker] = state.mean
        state.task_plays[worker] = 0 if reused else aes.mean_episodes
        state.task_critic[worker] = state.critic if learns else 0.0
        for block, part in noise.blocks(self.params.layout.d):
            epsilon = self.params.epsilon.block(number + 1, 0, block, part)
            gaussian = Gaussian(state.mean[part], state.variance[part])
            state.task_theta[worker, part] = distribution.sample(gaussian, epsilon)
        self._schedule(worker)

    def _schedule(self, worker: int) -> None:
        """Put a worker's task onto the agenda, which holds it, uncopied, until its result is taken.

        Of a turn of the critic the learner stays in checkpoints as it is now.
        """
        state, aes = self.state, self.params.config.aes_rl
        teaches = worker == self.critic
        sizes = state.task_number, state.task_updates, state.task_held, state.task_plays
        number, updates, held, plays = (int(size[worker]) for size in sizes)
        theta = critic = None
        if teaches:
            self.learner.hold_critic()
        else:
            theta = state.task_theta[worker]
            critic = state.task_critic[worker] if updates else None
        order = Order(
            worker, number, updates, held, theta, state.task_mean[worker], critic, plays=plays
        )
        least = duration(aes.of_critic if teaches else aes.update_cost, updates)
        start = int(state.task_start[worker])
        self.agenda.give(worker, start, order, at_root=teaches, least=least)

    def _teach_if_due(self) -> None:
        """Give an idle critic its next turn if its updates lag behind individuals' steps."""
        state, aes, critic = self.state, self.params.config.aes_rl, self.critic
        steps = state.counters.nominal_steps
        lags = steps - state.counters.gradient_updates >= aes.critic_chunk
        due = lags and steps >= aes.start_steps and state.transitions >= aes.batch_size
        if state.task_number[critic] != IDLE or not due:
            return
        state.task_number[critic] = state.given
        state.task_start[critic] = max(state.time, state.critic_ended)
        state.task_updates[critic] = aes.critic_chunk
        state.task_held[critic] = state.transitions
        state.task_mean[critic] = state.mean
        state.given += 1
        self._schedule(critic)

    def _take_critic(self, critic: np.ndarray, loss: float) -> None:
        """Take the trained critic, which individuals learn from, and count its updates."""
        self.learner.release()
        self.state.turns[self.state.arrived] += 1
        self.state.critic[:] = critic
        self.state.critic_loss = loss
        self.state.critic_ended = self.state.time
        self.state.counters.gradient_updates += self.params.config.aes_rl.critic_chunk
        self.state.counters.learner_phases += 1

    def _take_individual(self, task: Task, result: Result) -> None:
        """Move the distribution to or from an individual, and store its transitions."""
        state, worker = self.state, task.worker
        known = np.isfinite(result.mean_returns)  # an unstable episode tells nothing of the mean
        # of an older mean it is where it was trained for long
        if known.any() and state.task_told[worker] >= state.mean_told:
            state.mean_return = float(result.mean_returns[known].mean())
            state.length_of_mean = float(result.mean_lengths[known].mean())
            state.mean_told = int(state.task_told[worker])
            state.mean_known = int(np.array_equal(state.task_mean[worker], state.mean))
        before = state.mean.copy()
        p = move(self.params.config.aes_rl, state, result)
        state.mean_known *= np.array_equal(state.mean, before)
        self._store(result)
        lag, trained = state.told - state.task_told[worker], state.task_updates[worker] > 0
        state.row[state.arrived] = (
            result.episodic_return, result.length, trained, worker,
            state.time, lag, p, state.mean_return,
        )  # fmt: skip
        state.arrived += 1
        state.told += 1
        state.counters.member_updates += int(state.task_updates[worker])

    def _store(self, result: Result) -> None:
        """Put an individual's transitions into the replay, and count its steps."""
        state, count = self.state, len(result.rows)
        refuse_overwritten(self.params.config, state, count, self._reading().values())
        state.transitions += count
        write_ring(state.replay, result.rows, state.transitions)
        self.world.fence()
        state.written[0] = state.transitions
        self._brought[self.world.node] = state.transitions
        self.learner.advance(count, result.length)
        state.lengths[:] = np.append(state.lengths[1:], result.length)
        counters = state.counters
        both = result.length + result.mean_steps  # which decide what becomes of the mean
        counters.env_steps_population += both
        counters.nominal_steps += result.length
        counters.unstable_episodes += result.unstable
