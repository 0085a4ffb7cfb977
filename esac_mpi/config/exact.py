"""Numbers as they were written: shares and rates whose products are rounded; whole ones."""

import re
from fractions import Fraction


def exact(written: float) -> Fraction:
    """Take a number for the decimal that it prints as: 0.29 of 100 is 29, and not a little less."""
    return Fraction(str(written))


def whole(text: str) -> int:
    """Read a whole number, 1e6 and 2.0 among them. Raises ValueError for any other text."""
    if re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+]?\d{1,2}|[+-]?\d+\.\d*", text):
        found = Fraction(text)
        if found.denominator == 1:
            return int(found)
    return int(text)
