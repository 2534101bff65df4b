"""The version of the product. `pyproject.toml` is the only place that states it."""

import tomllib
from pathlib import Path

# Read without `project.instance`, which creates the data folder.
FILE = Path(__file__).resolve().parent.parent / "pyproject.toml"


def get_product_version() -> str:
    """Return the version of this installation, such as `0.9.0`.

    Raises OSError if the file is missing, KeyError if it states no version.
    """
    with FILE.open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])
