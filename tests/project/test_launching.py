"""Problems that stop a start or delay its link: a used port, a missing library, another page."""

import errno
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django.fixtures import Settings

from chats.ground import native
from project import addresses, instance, launcher, small_model
from project.seed import seed_database
from project.supervisor import Child, Supervisor

ABSENT = "libgomp.so.1: cannot open shared object file: No such file or directory"


@pytest.fixture
def used() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_used_port_is_named_before_anything_starts(used: int, host: str) -> None:
    with pytest.raises(addresses.NotLaunched) as refused:
        launcher.launch_instance(host=host, port=used)

    sentence = str(refused.value)
    assert f"Port {used} on {host}" in sentence
    assert f"PALIMPSEST_PORT={used + 1}" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("192.0.2.1", 8420)])
def test_an_address_that_cannot_be_listened_on_is_named(host: str, port: int) -> None:
    with pytest.raises(addresses.NotLaunched, match=f"Listening on {re.escape(host)}, port {port}"):
        addresses.refuse_used_port(host, port)


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the web process reports that it listens."""
    file = tmp_path / "web.ready"
    monkeypatch.setattr(launcher, "READY", file)
    return file


def test_the_link_waits_for_our_own_process(ready: Path, used: int) -> None:
    supervisor = Supervisor()
    page = Child(name="web", command=[sys.executable, "-c", "import time; time.sleep(60)"])
    supervisor.add(page)
    answers: list[bool] = []
    waiting = threading.Thread(
        target=lambda: answers.append(
            launcher.wait_for_page(supervisor, page, host="127.0.0.1", port=used)
        )
    )
    try:
        waiting.start()
        waiting.join(0.3)
        # This port answers, but not from our web process.
        assert answers == []
        ready.write_text("1", encoding="ascii")
        waiting.join(0.3)
        assert answers == []
        assert page.process
        ready.write_text(str(page.process.pid), encoding="ascii")
        waiting.join(10)
        assert answers == [True]
    finally:
        supervisor.request_stop()
        page.stop()


@pytest.mark.usefixtures("ready")
def test_a_port_that_was_taken_meanwhile_ends_the_start(used: int) -> None:
    supervisor = Supervisor()
    page = Child(name="web", command=[sys.executable, "-c", "raise SystemExit(1)"])
    supervisor.add(page)
    assert page.process
    page.process.wait(30)

    with pytest.raises(addresses.NotLaunched, match=f"Port {used}"):
        launcher.wait_for_page(supervisor, page, host="127.0.0.1", port=used)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package whose native library is not installed."""
    (tmp_path / "broken_native.py").write_text(f"raise ImportError({ABSENT!r})", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "broken_native"


def test_a_missing_library_is_named_with_its_package(broken: str) -> None:
    lacking = native.try_import(broken)

    assert lacking == native.MissingLibrary("libgomp.so.1")
    assert "apt install libgomp1" in lacking.remedy
    assert native.try_import("json") is None
    assert native.try_import("not_installed_at_all") is None


@pytest.mark.parametrize(
    "message",
    [
        "valkey-server: error while loading shared libraries: libodd.so.7: cannot open shared"
        " object file: No such file or directory",
        "libodd.so.7: cannot open shared object file: No such file or directory",
    ],
)
def test_a_library_without_a_known_package_is_named(message: str) -> None:
    lacking = native.parse_missing_library(message)

    assert lacking
    assert "libodd.so.7" in lacking.remedy


def test_a_small_model_that_cannot_run_here_is_said_and_not_offered(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SMALL_MODEL_PORT", raising=False)
    monkeypatch.setattr(small_model, "PACKAGES", (broken,))
    supervisor = Supervisor()

    launcher.start_small_model(supervisor)

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "libgomp.so.1" in said
    assert "libgomp1" in said
    assert supervisor.children == []
    assert "SMALL_MODEL_PORT" not in os.environ
    assert not (tmp_path / "small_model.port").exists()


def test_a_command_without_a_library_it_needs_ends_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "django").mkdir()
    (tmp_path / "django" / "__init__.py").write_text(
        f"raise ImportError({ABSENT!r})", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Palimpsest needs libgomp.so.1")
    assert "Traceback" not in done.stderr


@pytest.mark.django_db
def test_the_printed_command_works_in_the_folder_it_was_printed_for(now: datetime) -> None:
    printed = seed_database(now=now, base_url="http://127.0.0.1:9999")
    (line,) = [line for line in printed.splitlines() if line.startswith("Another link: ")]
    words = line.removeprefix("Another link: ")
    assert words.startswith("PALIMPSEST_DATA=")
    assert words.endswith("manage.py login_link")

    helped = subprocess.run(
        ["/bin/sh", "-c", f"{words} --help"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert helped.returncode == 0, helped.stderr


@pytest.mark.django_db
def test_a_link_has_the_address_of_the_running_instance(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR = tmp_path
    out = StringIO()
    monkeypatch.setenv("PALIMPSEST_PORT", "8555")
    call_command("login_link", stdout=out)
    assert out.getvalue().startswith("http://127.0.0.1:8555/")
    (tmp_path / "address").write_text("http://127.0.0.1:8421\n", encoding="utf-8")
    call_command("login_link", stdout=out)
    assert "http://127.0.0.1:8421/login/link/" in out.getvalue()


def test_a_worker_of_root_prints_no_warning_below_the_sign_in_link() -> None:
    # In a new interpreter, because pytest resets its filters.
    script = (
        "import warnings, project.celery\n"
        "from celery.exceptions import SecurityWarning\n"
        "warnings.warn(SecurityWarning('worker of root'))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr == ""


@pytest.mark.parametrize("content", ["", "\x7fELF", "#!/nowhere/sh\n"])
def test_a_broker_program_that_does_not_run_is_named(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "valkey-server"
    program.write_text(content, encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(instance, "DATA_DIR", tmp_path)
    with pytest.raises(addresses.NotLaunched, match=rf"{program} could not be started: .*\. Re"):
        launcher.start_broker(Supervisor())


def test_a_process_that_cannot_be_started_now_is_started_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [OSError(errno.EAGAIN, "Resource temporarily unavailable"), None]
    started: list[float] = []

    def start(child: Child) -> None:
        if error := errors.pop(0):
            raise error
        started.append(child.start_at)

    monkeypatch.setattr(Child, "start", start)
    child = Child(name="worker", command=["true"])
    child.tend()
    assert "worker could not be started (Resource temporarily unavailable)" in caplog.text
    child.tend()
    assert started == []
    child.start_at = 0.0
    child.tend()
    assert started == [0.0]
