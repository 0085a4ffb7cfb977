"""Configurations that make no sense, each made from a text: TOML files and command lines, random and mutated."""

import json
import random
import string
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from esac_mpi import config
from esac_mpi.config.reads import conditions, reads

TEXTS = [
    "",
    " ",
    "läufe ü 中",
    "a" * 3000,
    "\u202e\u0000",
    "'\"\\",
    "nan",
    "-1",
    "--seed",
    "x.toml",
    "CyclicMDP-v0",
    "none:None-v0",
    "\udcff",
]
NUMBERS = [
    *(
        "0",
        "-1",
        "1",
        "2",
        "7",
        "11",
        "0.5",
        "-0.0",
        "1e-320",
        "1e400",
        "inf",
        "-inf",
        "nan",
        "2**3",
        "1_000",
        "0x10",
        "٣",
    ),
    *(
        str(2**31),
        str(2**63),
        str(-(2**63)),
        str(10**30),
        "9" * 400,
        "9" * 5000,
        "1e308",
        "True",
        "None",
        "[1]",
    ),
]
TOML_VALUES = [
    *NUMBERS, '""', '"x"', '"\\u0000"', '"läufe"', "true", "[]", "[1, 2]", "[-1]", "[1.5]", '["a"]', "[[8]]", "{}", "{a = 1}",
    "2026-01-01", "07:00", "[" * 3000, "[" * 3000 + "]" * 3000, "", "'''", "{a = {b = {c = []}}}", "[8, 8]", "[0]", "[8, true]",
]  # fmt: skip
LINES = [
    "\ufeff",
    "[",
    "[[task]]",
    "[task.id]",
    "= 1",
    "a.b.c = 1",
    "\x00",
    "#\x01",
    "[esac]\n[esac]",
    "seed = 1\nseed = 2",
    '"" = 1',
    "task = 1",
]


def hint(name: str) -> Any:
    """Return the type of a field."""
    section, _, key = name.rpartition(".")
    owner = get_type_hints(config.Config)[section] if section else config.Config
    return get_type_hints(owner)[key]


def fitting(choose: random.Random, name: str, toml: bool) -> str:
    """Return a value of the right type, small, seldom out of range."""
    kind = hint(name)
    if get_origin(kind) is Union:
        kind = choose.choice(get_args(kind))
    if get_origin(kind) is Literal:
        text = choose.choice(get_args(kind))
        return json.dumps(text) if toml else text
    if get_origin(kind) is dict:
        return '{a = 1, b = ["x", {c = 0.5}]}' if toml else '{"a": 1, "b": ["x", {"c": 0.5}]}'
    if kind is bool:
        return choose.choice(["true", "false"])
    if kind is str:
        return json.dumps("cpu") if toml else "cpu"
    if kind is float:
        return str(choose.choice([0.0, 0.1, 0.5, 1.0, 3.0]))
    if kind is int:
        return str(choose.choice([0, 1, 2, 3, 6, 10]))
    return "[8, 4]" if toml else "8"


def wrong_name(choose: random.Random, name: str) -> str:
    """Return the name with something wrong with it."""
    place = choose.randrange(len(name) + 1)
    return choose.choice(
        [name[:place] + choose.choice(string.printable[:95] + "ü中") + name[place:], name[:place] + name[place + 1 :],
         name.upper(), name.rpartition(".")[2], name + ".x", "", "." * 50, "x" * 2000, "läufe", name.partition(".")[0]]
    )  # fmt: skip


def toml_text(choose: random.Random) -> str:
    """Return the text of a configuration file, mostly with something wrong in it."""
    tables: dict[str, list[str]] = {}
    for name in choose.sample(config.NAMES, choose.randrange(1, 6)):
        value = (
            fitting(choose, name, toml=True)
            if choose.random() < 0.7
            else choose.choice(TOML_VALUES)
        )
        name = wrong_name(choose, name) if choose.random() < 0.05 else name
        section, _, key = name.rpartition(".")
        key = key if choose.random() < 0.95 else json.dumps(key, ensure_ascii=False)
        tables.setdefault(section, []).append(f"{key} = {value}")
    lines = tables.pop("", [])
    for section, entries in tables.items():
        lines += [f"[{section}]", *entries]
    if choose.random() < 0.1:
        lines.insert(choose.randrange(len(lines) + 1), choose.choice(LINES))
    return "\n".join(lines) + "\n"


def spoilt(choose: random.Random, text: str) -> bytes:
    """Return the text as bytes, now and then with some of them changed."""
    content = bytearray(text.encode(errors="surrogatepass"))
    while content and choose.random() < 0.1:
        content[choose.randrange(len(content))] = choose.randrange(256)
    return bytes(content)


def words(choose: random.Random, wrong: float = 0.3) -> list[str]:
    """Return a command line, each word with a chance of being wrong."""
    algorithm = choose.choice(config.ALGORITHMS)
    read = [name for name in config.NAMES if reads(algorithm, name) and not conditions(name)]
    line = [f"--algorithm={algorithm}"]
    for name in choose.sample(
        read if choose.random() < 0.8 else config.NAMES, choose.randrange(1, 5)
    ):
        any_value = choose.choice([*NUMBERS, *TEXTS])
        value = any_value if choose.random() < wrong else fitting(choose, name, toml=False)
        name = wrong_name(choose, name) if choose.random() < wrong / 5 else name
        name = name.replace("_", "-") if choose.random() < 0.3 else name
        line += [f"--{name}={value}"] if choose.random() < 0.5 else [f"--{name}", value]
    if choose.random() < wrong / 3:
        extra = [
            "--fresh",
            "--",
            "-h",
            "--help",
            "-x",
            "x.toml",
            ".toml",
            "",
            "ü",
            "--seed",
            "--tyro-print-completion",
            "/",
            "@x",
        ]
        line.insert(choose.randrange(len(line) + 1), choose.choice(extra))
    return [word.replace("\0", "") for word in line]  # the system passes no zeros


def case(seed: str, directory: Path) -> list[str]:
    """Return the command line of a case; its file, if it has one, lies in the directory."""
    choose = random.Random(seed)
    line = words(choose) if choose.random() < 0.5 else []
    if not line or choose.random() < 0.3:
        file = directory / "case.toml"
        file.write_bytes(spoilt(choose, toml_text(choose)))
        line.insert(0, str(file))
    return line
