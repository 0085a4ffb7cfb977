"""esac-mpi sweep: the lines of a grid of settings."""

import shlex

import pytest
from commands import command

from esac_mpi.config import load

sweep = command("sweep")


def test_sweep_writes_the_grid(tmp_path, capsys):
    out = tmp_path / "jobs.txt"
    grid = [
        "--tasks",
        "Ant-v5",
        "dm_control/walker-walk-v0",
        "--algorithms",
        "esac",
        "es",
        "--seeds",
        "0",
        "4-5",
    ]
    varied = [
        "--set",
        "sigma",
        "0.1",
        "0.2",
        "--set",
        "esac.winner_pull",
        "1e-6",
        "0",
        "--set",
        "policy.hidden",
        "8 8",
    ]
    assert sweep.main([*grid, *varied, "--root", str(tmp_path / "runs"), "--out", str(out)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [
        str(out),
        "36 runs, 12 settings",
    ]  # 2 tasks * 3 seeds * (2 * 2 of esac + 2 of es)
    assert told[2].split() == [
        "SLURM",
        f"LIST={out}",
        "sbatch",
        "--array=0-35%10",
        "jobs/slurm-array.sbatch",
    ]
    assert told[3].split() == [
        "PBS",
        f"LIST={out}",
        "qsub",
        "-v",
        "LIST",
        "-J",
        "0-35",
        "jobs/pbs-array.sh",
    ]
    lines = out.read_text().splitlines()
    assert len(lines) == 36
    first = (
        "--task.id Ant-v5 --algorithm esac --seed 0"
        " --esac.sigma 0.1 --esac.winner_pull 1e-6 --policy.hidden 8 8"
    )
    assert (
        lines[0] == f"{first} --run-dir {tmp_path}/runs/Ant-v5-esac-sigma0.1-winner_pull1e-6-seed0"
    )
    config, _ = load(lines[-1].split())
    assert (
        config.task.id, config.algorithm, config.seed, config.es.sigma, config.policy.hidden,
    ) == (
        "dm_control/walker-walk-v0", "es", 5, 0.2, (8, 8),
    )  # fmt: skip
    assert config.run_dir.endswith("runs/dm_control-walker-walk-v0-es-sigma0.2-seed5")
    assert len({line.split()[-1] for line in lines}) == 36


def test_a_field_without_a_table_is_of_the_table_that_an_algorithm_reads(tmp_path):
    out = tmp_path / "jobs.txt"
    grid = [
        "--tasks",
        "Ant-v5",
        "--algorithms",
        "erl",
        "pderl",
        "--seeds",
        "0",
        "--set",
        "mutation_probability",
        "0.5",
    ]
    assert sweep.main([*grid, "--root", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert [
        load(line.split())[0].erl.mutation_probability for line in out.read_text().splitlines()
    ] == [0.5, 0.5]


def test_blanks_in_paths_stay_in_their_words(tmp_path, capsys):
    config, out = tmp_path / "my, conf.toml", tmp_path / "my list.txt"
    config.touch()
    words = [
        "--configs",
        str(config),
        "--seeds",
        "0",
        "--root",
        str(tmp_path / "my runs"),
        "--out",
        str(out),
    ]
    assert sweep.main(words) == 0
    told = [shlex.split(line) for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[1] for line in told[:2]] == [f"LIST={out}"] * 2
    assert told[1][2:] == [
        "INDEX=0",
        "qsub",
        "-v",
        "LIST,INDEX",
        "jobs/pbs-array.sh",
    ]  # an array has two elements or more
    assert told[2][:5] == ["here", "xargs", "-L", "1", "-a"]
    assert told[2][5] == str(out)
    listed = shlex.split(out.read_text())
    assert (listed[0], listed[-1]) == (str(config), f"{tmp_path}/my runs/my, conf-esac-seed0")


def test_blanks_in_values_stay_in_their_words(tmp_path):
    varied = [
        "--set",
        "policy.hidden",
        "8  8",
        "--set",
        "task.kwargs",
        '{"xml_file": "my robots/a.xml"}',
    ]
    out = tmp_path / "jobs.txt"
    assert sweep.main(["--seeds", "0", *varied, "--out", str(out)]) == 0
    config, _ = load(shlex.split(out.read_text()))
    assert (config.policy.hidden, config.task.kwargs) == ((8, 8), {"xml_file": "my robots/a.xml"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "sigme", "1"], "did you mean 'esac.sigma'?"),
        (["--set", "esac.winner_fraction", "2"], "must be at most 1"),
        (["--set", "esac.sigma"], "needs one value or more"),
        (
            ["--algorithms", "esac", "sax", "--set", "sigma", "0.1"],
            "--algorithms sax: there is no such algorithm",
        ),
        (["--seeds", "0..4"], "expected a number or a range"),
        (["--seeds", "3-1"], "--seeds 3-1: expected a number or a range"),
        (["--seeds", "²"], "--seeds ²: expected a number or a range"),
        (["--set", "seed", "4", "5"], "--set seed: seeds are --seeds"),
        (["--set", "run_dir", "x"], "--set run_dir: every run has its own, below --root"),
        (["--configs", "no.toml"], "no.toml: No such file"),
        (["--tasks", "Ant-v5", "Ant-v5"], "two runs would share"),
    ],
)
def test_sweep_refuses_what_could_not_run(tmp_path, capsys, arguments, said):
    assert (
        sweep.main(["--tasks", "Ant-v5", *arguments, "--out", str(tmp_path / "x" / "jobs.txt")])
        == 2
    )
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
