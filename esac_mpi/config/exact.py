"""Numbers as they were written: a share or a rate of the configuration, of which a product is to be rounded."""

from fractions import Fraction


def exact(written: float) -> Fraction:
    """Take a number for the decimal that it prints as: 0.29 of 100 is 29, where the product of floats is below it."""
    return Fraction(str(written))
