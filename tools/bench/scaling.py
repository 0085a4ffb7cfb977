"""Seconds per generation at every rank count here, and a SIMULATION beyond, made from what was measured here."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from esac_mpi import config
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.host import affinity
from esac_mpi.record import RunFiles
from tools.bench import simulation
from tools.bench.costs import costs_of, phase_counts
from tools.bench.measurement import Measurement, say
from tools.bench.program import INTERVAL, learner_phase, train

TASK, PICTURE = "HalfCheetah-v5", Path("runs/scaling.png")
POPULATIONS = (50, 500, 5000)
CORES = len(affinity.cores())
SHORT = (
    1000,
    0.3,
)  # steps of the measured learner phases, and updates per step: a whole one takes minutes


@dataclass(frozen=True)
class Kind:
    """What is run: an algorithm, and the learner_lag of ESAC."""

    name: str
    algorithm: str
    lag: int | None = None


KINDS = [
    Kind("ES", "es"),
    Kind("ESAC, lag 0", "esac", 0),
    Kind(f"ESAC, lag {INTERVAL}", "esac", INTERVAL),
]
Point = tuple[Kind, int]  # and a number of ranks


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure generations at each number of ranks here; simulate them, and those of a cluster. Raises Unusable."""
    if len(options.task) > 1:
        raise Unusable(f"scaling measures one task, not {', '.join(options.task)}: name one")
    options.task, options.out = (options.task or [TASK])[0], options.out or PICTURE
    n, generations, rounds, phase = 50, 8, options.rounds or 1, learner_phase(*SHORT)
    more: tuple[object, ...] = ()
    if options.quick:
        n, generations, rounds, more = 8, 8, 1, ("--task.horizon", 20, "--policy.hidden", 8, 8)
        phase = (*learner_phase(20, 0.1), "--sac.batch_size", 16)
    runs: dict[Point, list[RunFiles]] = {}
    for _ in range(rounds):
        for ranks in [r for r in (2**i for i in range(13)) if r < CORES] + [CORES]:
            for kind in KINDS:
                lag = (*phase, "--esac.learner_lag", kind.lag) if kind.lag is not None else ()
                run = train(ranks, kind.algorithm, options.task, n, generations, *more, *lag)
                runs.setdefault((kind, ranks), []).append(run)
    costs = {
        kind.algorithm: measured(runs[kind, 1], options.host_per_update)
        for kind in KINDS
        if not kind.lag
    }
    yield from check_model(runs, costs, n, options)
    costs["esac"] = on_a_device(costs["esac"], options.updates_per_second, options.host_per_update)
    played = np.concatenate(
        [cost.durations for cost in costs.values()]
    )  # so that both replay the same episodes
    costs = {
        algorithm: replace(cost, durations=played, noise=costs["es"].noise)
        for algorithm, cost in costs.items()
    }
    yield from predict(runs, costs, options)


def measured(runs: list[RunFiles], host: float) -> simulation.Costs:
    """Return what the parts cost; host: of rank 0's core, for an update that a device makes, where one did [s]."""
    costs, device = costs_of(runs), str(runs[0].provenance.get("device", ""))
    return replace(costs, host_per_update=host) if device.startswith("cuda") else costs


def on_a_device(costs: simulation.Costs, rate: float, host: float) -> simulation.Costs:
    """Return the costs with a device that makes so many updates/s (0: none) and takes so much of rank 0's core for each [s]."""
    return replace(costs, seconds_per_update=1 / rate, host_per_update=host) if rate else costs


def wall(run: RunFiles) -> np.ndarray:
    """Return the seconds of whole generations, in whole intervals, after the first phase has warmed up and been merged."""
    return np.diff(run.columns["timing/wall_seconds"])[2 * INTERVAL - 1 :]


def cluster(options: argparse.Namespace, ranks: int) -> Cluster:
    """Return the simulated cluster."""
    return Cluster(ranks, options.cores_per_node, options.latency, options.bandwidth)


def check_model(
    runs: dict[Point, list[RunFiles]],
    costs: dict[str, simulation.Costs],
    n: int,
    options: argparse.Namespace,
) -> Iterator[Measurement]:
    """Yield the measured generations and how far the model, made from one rank, is from them."""
    for (kind, ranks), found in runs.items():
        seconds = np.array([wall(run) for run in found])
        case = f"{kind.name} {options.task} n={n} ranks={ranks}"
        yield Measurement.of("scaling", case, "generation", "s", seconds)
        own = costs[kind.algorithm]
        if kind.lag is not None:  # the phases that were measured, not whole ones
            steps, updates = phase_counts(found[0])[0].mean(axis=1)
            own = replace(own, phase_steps=int(steps), phase_updates=int(updates))
        here = Cluster(ranks, cores_per_node=ranks)
        predicted = simulation.simulate(
            n, here, own, simulation.Schedule(kind.lag, INTERVAL), cycles=10
        ).mean()
        yield Measurement.of(
            "scaling",
            case,
            "simulated / measured",
            "ratio",
            predicted / seconds.mean(axis=1),
            simulation=True,
        )


def predict(
    runs: dict[Point, list[RunFiles]],
    costs: dict[str, simulation.Costs],
    options: argparse.Namespace,
) -> Iterator[Measurement]:
    """Yield simulated generations up to 4,096 ranks; print the assumptions and draw the picture."""
    g = config.ESAC().gradient_interval
    tell_assumptions(costs, g, options)
    ranks = [2**i for i in range(0, 13, 4 if options.quick else 1)]
    populations = POPULATIONS[:1] if options.quick else POPULATIONS
    curves: dict[int, dict[str, np.ndarray]] = {}
    for population in populations:
        found = [simulated(population, cluster(options, r), costs, g) for r in ranks]
        curves[population] = {
            "ranks": np.array(ranks),
            **{k: np.array([f[k].mean() for f in found]) for k in found[0]},
        }
        for r, values in zip(ranks, found, strict=True):
            yield from describe_point(population, r, values, costs["esac"], g)
    points: dict[str, list[tuple[int, float]]] = {}
    for (kind, r), made in runs.items():
        if kind.lag is None:  # the measured learner phases are short ones
            points.setdefault(kind.name, []).append(
                (r, float(np.median([wall(run) for run in made])))
            )
    config_here = runs[KINDS[0], 1][0].config
    hidden = "x".join(map(str, config_here.policy.hidden))
    title = f"SIMULATION: {options.task}, {hidden}; ESAC with a phase of {costs['esac'].phase:.0f} s every {g} generations"
    simulation.draw(curves, {} if options.quick else points, title, options.out)
    say(f"simulation drawn in {options.out}")


FLOOR = "max(ES, phase / g)"


def simulated(
    n: int, place: Cluster, costs: dict[str, simulation.Costs], g: int
) -> dict[str, np.ndarray]:
    """Return the simulated seconds per generation of ES, and of ESAC with learner_lag 0 and g."""
    es = simulation.simulate(n, place, costs["es"], simulation.Schedule(None, g))
    return {
        "ES": es,
        "ESAC, lag 0": simulation.simulate(n, place, costs["esac"], simulation.Schedule(0, g)),
        f"ESAC, lag {g}": simulation.simulate(n, place, costs["esac"], simulation.Schedule(g, g)),
        FLOOR: np.maximum(es, costs["esac"].phase / g),
    }


def describe_point(
    n: int, ranks: int, seconds: dict[str, np.ndarray], costs: simulation.Costs, g: int
) -> Iterator[Measurement]:
    """Yield what is simulated of one population on one number of ranks."""
    case = f"n={n} ranks={ranks}"
    for name in ("ES", "ESAC, lag 0", f"ESAC, lag {g}"):
        yield Measurement.of("scaling", case, name, "s", seconds[name], simulation=True)
    lagged, es, floor = (seconds[name].mean() for name in (f"ESAC, lag {g}", "ES", FLOOR))
    yield Measurement.of(
        "scaling", case, f"ESAC, lag {g} / {FLOOR}", "ratio", lagged / floor, simulation=True
    )
    core = costs.phase - costs.device * (1 - costs.host)
    work = max(floor, es + core / (g * ranks))  # a core that learns does not evaluate
    yield Measurement.of(
        "scaling",
        case,
        f"ESAC, lag {g} / max(that, work / ranks)",
        "ratio",
        lagged / work,
        simulation=True,
    )
    if ranks in (64, 1024):
        rates = simulation.updates_per_second(es, costs, g)
        for name, rate in zip(("", ", its playing counted"), rates, strict=True):
            yield Measurement.of(
                "scaling", case, f"learner no floor from{name}", "updates/s", rate, simulation=True
            )


def tell_assumptions(
    costs: dict[str, simulation.Costs], g: int, options: argparse.Namespace
) -> None:
    """Say what the simulation takes for granted, and with which numbers."""
    es, esac = costs["es"], costs["esac"]
    say("The rest is a SIMULATION. It takes for granted that:")
    for assumption in simulation.ASSUMPTIONS:
        say(f"- {assumption}")
    say(
        f"- network: latency {options.latency:g} s, {options.bandwidth:g} bytes/s, {options.cores_per_node} cores a node, "
        f"barrier step {Cluster(1).barrier:g} s\n"
        f"- measured here on one rank: d {es.d:,}; episodes {np.mean(es.durations):.4f} s (from {np.min(es.durations):.4f} to "
        f"{np.max(es.durations):.4f}, {es.durations.size} of them); noise {es.noise * 1e9:.1f} ns a parameter and member; update "
        f"{es.update * 1e9:.1f} (ESAC {esac.update * 1e9:.1f}) ns a parameter and slot; plan {es.plan * 1e3:.2f} ms; record "
        f"{es.record * 1e3:.1f} ms\n"
        f"- learner phase every {g} generations: {esac.phase_steps:,} steps of {esac.seconds_per_step * 1e6:.0f} us and "
        f"{esac.phase_updates:,} updates of {esac.seconds_per_update * 1e3:.2f} ms = {esac.phase:.1f} s"
        + (f", on a device; {esac.host:.1%} of rank 0's core meanwhile" if esac.device else "")
    )
