"""The example package of strategies, really installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "plugin_package"


def install(folders: pytest.TempPathFactory) -> Path:
    """The example package, installed by pip into a folder of its own, which is returned."""
    source = folders.mktemp("package") / "source"
    target = folders.mktemp("installed")
    shutil.copytree(PACKAGE, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*command, str(source)], check=True, timeout=100)
    return target
