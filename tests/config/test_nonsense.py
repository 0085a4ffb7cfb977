"""Files and command lines that Hypothesis makes are accepted, or refused with a message."""

import io
import json
import tempfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esac_mpi import config
from esac_mpi.config.files import UNSAVED
from esac_mpi.config.reads import conditions, reads

pytestmark = pytest.mark.slow

# fmt: off
STRANGE = st.sampled_from([
    "", " ", "0", "-1", "11", "-0.0", "1e-320", "1e400", "inf", "-inf", "nan", "2**3", "1_000",
    "0x10", "٣", str(2**31), str(2**63),
    str(-(2**63)), "9" * 400, "9" * 5000, "1e308", "True", "None", "[1]",
    "a" * 3000, "\u202e", "'\"\\", "--seed", "x.toml",
    "CyclicMDP-v0", "none:None-v0", "\udcff",
])
STRANGE_TOML = st.sampled_from([
    "-1", "nan", "1e400", str(2**63), "9" * 5000, '""', '"\\u0000"', '"läufe"', "true",
    "[]", "[-1]", "[1.5]", '["a"]', "[[8]]",
    "{}", "{a = 1}", "2026-01-01", "07:00", "[" * 3000, "", "'''", "{a = {b = {c = []}}}",
    "[8, true]", "1_000", "0x10", "None",
])
STRANGE_LINES = st.sampled_from([
    "\ufeff", "[", "[[task]]", "[task.id]", "= 1", "a.b.c = 1", "\x00", "#\x01", "[esac]\n[esac]",
    "seed = 1\nseed = 2", '"" = 1',
    "task = 1",
])
EXTRA = st.sampled_from([
    "--fresh", "--", "-h", "--help", "-x", "x.toml", ".toml", "", "ü", "--seed",
    "--print-completion", "/", "@x",
])
# fmt: on
TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=20)  # the system passes no zeros
REPEATABLE = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
ONE_IN_TEN = st.integers(1, 10).map(lambda number: number == 1)


VALUES = {
    bool: [True, False], str: ["cpu"], float: [0.0, 0.1, 0.5, 3.0], int: [0, 1, 2, 10]
}  # fmt: skip


def fitting(name: str) -> st.SearchStrategy:
    """Values of the type of a field, small, seldom out of range: text, number, list or JSON."""
    hint, made = config.hint(name), []
    for kind in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if get_origin(kind) is dict:
            made.append(['{"a": 1, "b": ["x", {"c": 0.5}]}'])
        else:
            made.append(get_args(kind) if get_origin(kind) is Literal else VALUES.get(kind, [8]))
    return st.one_of(map(st.sampled_from, made))


@st.composite
def names(draw, known):
    """Draw the name of a field, now and then with something wrong with it."""
    name = draw(st.sampled_from(known))
    if not draw(ONE_IN_TEN):
        return name
    place = draw(st.integers(0, len(name)))
    inserted = name[:place] + draw(TEXTS) + name[place:]
    wrong = [name.upper(), name.rpartition(".")[2], name + ".x", "", "x" * 2000]
    return draw(st.sampled_from([inserted, *wrong]))


@st.composite
def words(draw):
    """Draw a command line, each word with a chance of being wrong."""
    algorithm = draw(st.sampled_from(config.ALGORITHMS))
    read = [name for name in config.NAMES if reads(algorithm, name) and not conditions(name)]
    line = [f"--algorithm={algorithm}"]
    for name in draw(st.lists(names(config.NAMES if draw(ONE_IN_TEN) else read), max_size=4)):
        right = name in config.NAMES and draw(st.booleans())
        value = draw(fitting(name) if right else STRANGE | TEXTS)
        value = str(value).lower() if isinstance(value, bool) else str(value)
        name = name.replace("_", "-") if draw(ONE_IN_TEN) else name
        line += [f"--{name}={value}"] if draw(st.booleans()) else [f"--{name}", value]
    if draw(ONE_IN_TEN):
        line.insert(draw(st.integers(0, len(line))), draw(EXTRA))
    return line


@st.composite
def files(draw):
    """Draw the bytes of a configuration file, often with something wrong in it."""
    lines = []
    for name in draw(st.lists(names(config.NAMES), max_size=5, unique=True)):
        right = name in config.NAMES and not draw(ONE_IN_TEN)
        right = right and get_origin(config.hint(name)) is not dict
        made = json.dumps(draw(fitting(name))) if right else None
        lines.append(f"{name} = {made or draw(STRANGE_TOML)}")
    if draw(ONE_IN_TEN):
        lines.insert(draw(st.integers(0, len(lines))), draw(STRANGE_LINES))
    content = bytearray("\n".join(lines).encode(errors="surrogatepass"))
    for byte in draw(st.binary(max_size=3)) if draw(ONE_IN_TEN) else b"":
        content[draw(st.integers(0, len(content))) :][:1] = bytes([byte])
    return bytes(content)


def judge(line: list[str], place: Path) -> str:
    """Let config.load answer; what it accepts comes back from its own TOML, a refusal says why."""
    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(io.StringIO()):
            found, _ = config.load(line)
    except config.ConfigError as error:
        return "refused" if str(error).strip() else "silent"
    except SystemExit as end:
        return "help" if output.getvalue().strip() and not end.code else "silent"
    defaults = dict(config.flatten(config.Config()))
    found = config.amend(found, {name: defaults[name] for name in UNSAVED})
    back = place / "back.toml"
    back.write_text(config.to_toml(found), encoding="utf-8", errors="replace")
    again = config.amend(config.Config(), config.read_toml(back))
    assert again == found or any("\ud800" <= c <= "\udfff" for c in repr(found) + "".join(line))
    return "accepted"


def test_what_is_loaded_is_accepted_or_refused_with_a_message():
    """Many of either kind."""
    answers = Counter()

    @settings(REPEATABLE, max_examples=150)
    @given(words(), st.none() | files())
    def load_all(line, file):
        with tempfile.TemporaryDirectory() as folder:
            if file is not None:
                (Path(folder) / "case.toml").write_bytes(file)
                line = [f"{folder}/case.toml", *line]
            answer = judge(line, Path(folder))
        assert answer != "silent"
        answers[answer] += 1

    load_all()
    assert min(answers["accepted"], answers["refused"]) > 30
