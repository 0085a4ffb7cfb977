"""The command line of a tool: its docstring is its help and names it, as `python -m tools.NAME`."""

import argparse
import re


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return the command line of a tool."""
    text = about or ""
    prog = re.search(r"python -m tools\.[a-z_.]+", text)
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=prog and prog[0], description=text, formatter_class=raw)
