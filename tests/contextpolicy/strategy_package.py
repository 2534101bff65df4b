"""The example package of strategies, installed with pip."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "plugin_package"


def install(folders: pytest.TempPathFactory) -> Path:
    """Install the example package into a separate folder with pip; return the folder."""
    source = folders.mktemp("package") / "source"
    target = folders.mktemp("installed")
    shutil.copytree(PACKAGE, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*command, str(source)], check=True, timeout=100)
    return target
