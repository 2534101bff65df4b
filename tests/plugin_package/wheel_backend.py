"""Builds the wheel of this package with the standard library alone.

The example can then be installed without a network or a build tool. A real package would name its
usual build backend instead.
"""

import tomllib
import zipfile
from pathlib import Path

_HERE = Path(__file__).parent


def build_wheel(
    wheel_directory: str,
    config_settings: object = None,
    metadata_directory: str | None = None,
) -> str:
    """Write the wheel and return its file name, as PEP 517 asks."""
    project = tomllib.loads((_HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    info = f"{stem}.dist-info"
    entries = ["[palimpsest.strategies]"]
    points = project["entry-points"]["palimpsest.strategies"]
    entries += [f"{name} = {target}" for name, target in points.items()]
    files = {
        "example_strategies.py": (_HERE / "example_strategies.py").read_text(encoding="utf-8"),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: example\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{info}/entry_points.txt": "\n".join(entries) + "\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    wheel_name = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel_name, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return wheel_name
