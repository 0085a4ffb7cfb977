"""What comes beside the code: configs/ and jobs/; in a wheel they are in the package (setup.py)."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def checkout() -> Path | None:
    """Return the checkout that the package is in, None where it was installed apart from one."""
    return PACKAGE.parent if (PACKAGE.parent / "configs/quickstart.toml").is_file() else None


def other_source(extension: str, module: str) -> ImportError:
    """Make the error of an extension built from another source than the module that uses it."""
    again = f"pip install -e {checkout()}" if checkout() else "pip install"
    return ImportError(
        f"{extension} was built from another source than {module}: run {again} again"
    )


def shipped() -> Path:
    """Return the folder that configs/ and jobs/ are in: the checkout, or the installed package."""
    return checkout() or PACKAGE
