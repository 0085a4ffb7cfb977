"""esac-mpi sweep: the lines of a grid of settings."""

import os
import shlex

import pytest

from esac_mpi.analysis.command import write_text
from esac_mpi.config import load


@pytest.fixture
def swept(tmp_path, call):
    """Write a sweep's lines to a list; return what is printed, and the lines."""

    def made(*words, out=tmp_path / "jobs.txt", root=tmp_path / "runs"):
        said = call("sweep", *words, "--root", root, "--out", out).out
        return said.splitlines(), out.read_text().splitlines()

    return made


def test_sweep_writes_the_grid(tmp_path, swept):
    grid = "--tasks Ant-v5 dm_control/walker-walk-v0 --algorithms esac es --seeds 0 4-5"
    varied = "--set sigma 0.1 0.2 --set esac.winner_pull 1e-6 0 --set policy.hidden"
    told, lines = swept(*grid.split(), *varied.split(), "8 8")
    out = tmp_path / "jobs.txt"
    # 2 tasks * 3 seeds * (2 * 2 of esac + 2 of es)
    assert told[:2] == [str(out), "36 runs, 12 settings"]
    slurm = f"SLURM LIST={out} sbatch --array=0-35%10 jobs/slurm-array.sbatch"
    pbs = f"PBS LIST={out} qsub -v LIST -J 0-35 jobs/pbs-array.sh"
    assert [line.split() for line in told[2:4]] == [slurm.split(), pbs.split()]
    assert len(lines) == 36
    first = (
        "--task.id Ant-v5 --algorithm esac --esac.sigma 0.1 --esac.winner_pull 1e-6 "
        "--policy.hidden 8 8 --seed 0"
    )
    name = "Ant-v5-esac-sigma0.1-winner_pull1e-6-seed0"
    assert lines[0] == f"{first} --run-dir {tmp_path}/runs/{name}"
    last, _ = load(lines[-1].split())
    assert (last.task.id, last.algorithm, last.seed) == ("dm_control/walker-walk-v0", "es", 5)
    assert (last.es.sigma, last.policy.hidden) == (0.2, (8, 8))
    assert last.run_dir.endswith("runs/dm_control-walker-walk-v0-es-sigma0.2-seed5")
    assert len({line.split()[-1] for line in lines}) == 36


def test_what_each_run_would_choose_is_one_note(tmp_path, call):
    line = ["--tasks", "Ant-v5", "--algorithms", "esac", "sac", "--out", tmp_path / "jobs.txt"]
    names = "esac.population_size, esac.update_cost, esac.workers"
    assert call("sweep", *line).err == (
        f"note: each run chooses {names} at its first start, by ranks and machine, "
        "so seeds may differ; to fix one: --set NAME NUMBER\n"
    )
    fixed = [word for name in names.split(", ") for word in ("--set", name, "8")]
    assert call("sweep", *line, *fixed).err == ""


def test_a_field_without_a_table_is_of_the_algorithms(swept):
    grid = "--tasks Ant-v5 --algorithms erl pderl --seeds 0 --set mutation_probability 0.5"
    _, lines = swept(*grid.split())
    assert [load(line.split())[0].erl.mutation_probability for line in lines] == [0.5, 0.5]


def test_what_one_configuration_alone_has_is_left_out_of_the_others(tmp_path, swept):
    for algorithm in ("es", "sac"):
        (tmp_path / f"{algorithm}.toml").write_text(f'algorithm = "{algorithm}"\n')
    files = [tmp_path / "es.toml", tmp_path / "sac.toml"]
    _, lines = swept("--configs", *files, *"--set sac.batch_size 64 128 --seeds 0".split())
    assert ["batch_size" in line for line in lines] == [False, True, True]


def test_blanks_in_paths_stay_in_their_words(tmp_path, swept):
    config, out, root = (tmp_path / name for name in ("my, conf.toml", "my list.txt", "my runs"))
    config.write_text("# the defaults\n")
    said, lines = swept("--configs", config, "--seeds", 0, out=out, root=root)
    told = [shlex.split(line) for line in said[2:]]
    assert [line[1] for line in told[:2]] == [f"LIST={out}"] * 2
    # an array has two elements or more
    assert told[1][2:] == "INDEX=0 qsub -v LIST,INDEX jobs/pbs-array.sh".split()
    assert told[2][:6] == [*"here xargs -L 1 -a".split(), str(out)]
    listed = shlex.split(lines[0])
    assert (listed[0], listed[-1]) == (str(config), f"{tmp_path}/my runs/my, conf-esac-seed0")


def test_blanks_in_values_stay_in_their_words(swept):
    kwargs = {"xml_file": "my robots/a.xml"}
    varied = ["--set", "policy.hidden", "8  8", "--set", "task.kwargs", str(kwargs)]
    _, lines = swept("--seeds", 0, *(word.replace("'", '"') for word in varied))
    config, _ = load(shlex.split(lines[0]))
    assert (config.policy.hidden, config.task.kwargs) == ((8, 8), kwargs)


def test_a_name_in_another_encoding_stays_as_it_is(tmp_path, call):
    out, root = tmp_path / "jobs.txt", os.fsdecode(b"runs\xff")
    call("sweep --tasks Ant-v5 --seeds 0 --root", root, "--out", out)
    assert out.read_bytes().endswith(b"--run-dir 'runs\xff/Ant-v5-esac-seed0'\n")
    assert [*write_text(root, out)] == [out]
    assert out.read_text(encoding="utf-8") == "runs\\udcff\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--set sigme 1", "did you mean 'esac.sigma'?"),
        ("--set esac.winner_fraction 2", "must be at most 1"),
        ("--set esac.sigma", "needs one value or more"),
        ("--algorithms esac sax --set sigma 0.1", "--algorithms sax: there is no such algorithm"),
        ("--algorithms es sax --set td3.gamma 0.9", "--algorithms sax: there is no such"),
        ("--seeds 0..4", "expected a number or a range"),
        ("--seeds 3-1", "--seeds 3-1: expected a number or a range"),
        ("--seeds 9223372036854775808", "expected a number or a range like 0-4, below 2**63"),
        ("--seeds 0-99999999999", "of at most 100,000 seeds"),
        ("--seeds ²", "--seeds ²: expected a number or a range"),
        ("--set seed 4 5", "--set seed: seeds are --seeds"),
        ("--set run_dir x", "--set run_dir: every run has its own, below --root"),
        ("--set sigma 0.1 0.2 --set esac.sigma 0.3", "--set esac.sigma: esac.sigma is set twice"),
        ("--set task.id Hopper-v5", "--set task.id: tasks are --tasks"),
        ("--configs no.toml", "no.toml: No such file"),
        ("--tasks Ant-v5 Ant-v5", "two runs would share"),
        ("--root a\nb", "'a\\nb/Ant-v5-esac-seed0' has a line break"),
    ],
)
def test_sweep_refuses_what_could_not_run(tmp_path, call, words, said):
    line = ["--tasks", "Ant-v5", *words.split(" "), "--out", tmp_path / "x" / "jobs.txt"]
    assert said in call("sweep", *line, code=2).err
    assert not (tmp_path / "x").exists()
