"""Clients of the gateway that run as separate programs."""

import os
import subprocess
import sys
from pathlib import Path

import httpx2
from playwright.sync_api import Page

from tests.support.repository import ROOT

CLIENTS = Path(os.environ.get("CLIENTS") or Path(sys.prefix) / "clients")
EXAMPLE = ROOT / "docs" / "examples" / "use_chat"
GATEWAY_PAGE = ROOT / "docs" / "gateway.md"


def run_client(
    command: list[str], *, env: dict[str, str], folder: Path, said: str = "", **files: str
) -> str:
    """The output of a client that gets this input; it must succeed."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    done = subprocess.run(  # as the documentation says
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False,
        input=said,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def send_in_example(page: Page, text: str, button: str = "Send") -> None:
    """Send a text."""
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name=button, exact=True).click()


def is_answering(address: str) -> bool:
    """Return True if a server answers there."""
    try:
        return httpx2.get(f"{address}/healthz").status_code == 200
    except httpx2.TransportError:
        return False
