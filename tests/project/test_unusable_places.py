"""Folders, files, ports and signals that stop a start: one error message each, no traceback."""

import errno
import json
import os
import signal
import sqlite3
import stat
import subprocess
from argparse import ArgumentParser, ArgumentTypeError
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError

from project import (
    addresses,
    data_folder,
    env,
    instance,
    launcher,
    logs,
    redis_url,
    trouble,
    versions,
)
from project.env import Misconfigured
from tests.faults.programs import MANAGE, python
from tests.support.repository import ROOT

NOBODY = 65_534


def told(*command: str, folder: Path, **more: str) -> tuple[int, list[str]]:
    """The exit code of a program, and its error lines."""
    done = subprocess.run(  # our own commands, no shell
        command,
        env={"PATH": os.environ["PATH"], "PALIMPSEST_DATA": str(folder), **more},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr.splitlines()


def test_a_data_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below"):
        code, lines = told(*python(MANAGE, "serve"), folder=folder)
        assert (code, len(lines)) == (1, 1)
        assert str(folder) in lines[0]


def test_a_data_folder_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for folder in (loop, Path("~no-such-user/data")):
        code, lines = told(*python(MANAGE, "check"), folder=folder)
        assert (code, len(lines)) == (1, 1)
        assert str(folder) in lines[0]


@pytest.mark.parametrize(
    "program", [[MANAGE, "serve"], [MANAGE, "check"], ["-c", "import project.celery"]]
)
def test_every_program_says_it_in_one_sentence(program: list[str], tmp_path: Path) -> None:
    code, lines = told(*python(*program), folder=tmp_path, SECRET_KEY_FILE="/nowhere/key")
    assert code == 1
    assert lines == ["SECRET_KEY_FILE names a file that cannot be read: No such file or directory."]


def test_a_folder_of_another_owner_is_used_if_its_group_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o2770)
    monkeypatch.setenv("PALIMPSEST_DATA", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert data_folder.prepare_data_folder(Path("/nowhere")) == tmp_path
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o2770
    monkeypatch.setattr(os, "access", lambda *_given: False)
    with pytest.raises(Misconfigured, match=f"cannot be used by user {NOBODY}") as refused:
        data_folder.prepare_data_folder(Path("/nowhere"))
    assert f"belongs to user {tmp_path.stat().st_uid}" in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user id")
@pytest.mark.parametrize("groups", [[2_000], []])
def test_a_volume_with_a_group_works_for_its_members_alone(
    groups: list[int], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, 0, 2_000)
    folder.chmod(0o2770)
    for above in (tmp_path, *tmp_path.parents[:3]):
        above.chmod(above.stat().st_mode | 0o111)
    # The codec is loaded first, because this user may not read all files of the interpreter.
    program = (
        "import os; from pathlib import Path; from project import data_folder;"
        " 'x'.encode('ascii'); open(os.devnull, encoding='ascii').close();"
        f" os.setgroups({groups}); os.setgid({NOBODY}); os.setuid({NOBODY});"
        " folder = data_folder.prepare_data_folder(Path('/nowhere'));"
        " data_folder.load_or_create_key(folder / 'secret_key', make='token')"
    )
    code, lines = told(*python("-c", program), folder=folder)
    if groups:
        assert (code, lines) == (0, [])
    else:
        assert "group 2000, mode 0770" in lines[-1]


def test_a_full_disk_and_a_read_only_folder_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "disk is full" in trouble.describe_command_error(full)
    read_only = OSError(errno.EROFS, "Read-only file system", "/srv/data/key")
    assert trouble.describe_command_error(read_only).startswith(
        "/srv/data/key cannot be written: it is read-only"
    )
    assert trouble.describe_command_error(OSError(errno.ECONNREFUSED, "refused")) == ""
    assert trouble.describe_command_error(ValueError("x")) == ""


@pytest.mark.parametrize("said", ["abc", "-1", "70000", "8420.0", "", "٣"])
def test_a_port_is_a_number(said: str) -> None:
    with pytest.raises(ArgumentTypeError, match="PALIMPSEST_PORT"):
        addresses.parse_port(said)


def test_the_web_process_refuses_an_open_address_without_tls() -> None:
    with pytest.raises(CommandError, match="passwords in the clear"):
        call_command("web", host="0.0.0.0")  # noqa: S104  # nothing listens


def test_a_closed_terminal_ends_the_launcher_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: dict[int, object] = {}
    monkeypatch.setattr(instance, "DATA_DIR", tmp_path)
    monkeypatch.setattr(launcher, "supervise_processes", lambda *_given, **_named: None)
    monkeypatch.setattr(launcher, "refuse_used_port", lambda *_given: None)
    monkeypatch.setattr(signal, "signal", lambda name, call: handled.update({name: call}))
    launcher.launch_instance(host="127.0.0.1", port=8420)
    assert handled.keys() == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    handled.clear()
    monkeypatch.setattr(
        signal, "getsignal", lambda name: signal.SIG_IGN if name == signal.SIGHUP else None
    )
    launcher.launch_instance(host="127.0.0.1", port=8420)
    assert handled.keys() == {signal.SIGINT, signal.SIGTERM}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("REDIS_URL", "http://:s3cret@db", redis_url.REDIS_URL_FORM),
        ("REDIS_URL", "redis://:s3cret@127.0.0.1:1/0", "The broker at 127.0.0.1:1/0 does not"),
        ("ENCRYPTION_KEYS", "s3cret", "ENCRYPTION_KEYS has a key that is not 32 bytes"),
        ("LOG_LEVEL", "loud", "LOG_LEVEL must be DEBUG, INFO, WARNING, ERROR or CRITICAL"),
        ("LOG_FORMAT", "xml", "LOG_FORMAT must be line or json"),
    ],
)
def test_a_setting_of_another_form_is_named_without_its_secret(
    name: str, value: str, said: str, tmp_path: Path
) -> None:
    program = [MANAGE, "check"] if "KEYS" in name else [MANAGE, "serve"]
    code, lines = told(*python(*program), folder=tmp_path, **{name: value})
    assert (code, len(lines)) == (1, 1)
    assert said in lines[0]
    assert "s3cret" not in lines[0]


def test_a_damaged_key_or_database_ends_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "encryption_key").write_text("lost")
    code, lines = told(*python(MANAGE, "check"), folder=tmp_path)
    assert (code, len(lines)) == (1, 1)
    assert f"{tmp_path / 'encryption_key'}: the key is not 32 bytes" in lines[0]
    (tmp_path / "encryption_key").write_bytes(b"\xff\x00")
    code, lines = told(*python(MANAGE, "check"), folder=tmp_path)
    assert (code, len(lines)) == (1, 1)
    assert str(tmp_path / "encryption_key") in lines[0]
    (tmp_path / "encryption_key").unlink()
    (tmp_path / "palimpsest.sqlite3").write_bytes(b"no database" * 1_000)
    for command in ("setup", "migrate"):
        code, lines = told(*python(MANAGE, command), folder=tmp_path)
        assert code in {1, trouble.SAID}
        assert lines == [trouble.DATABASE_DAMAGED]


@pytest.mark.parametrize("command", ["login_link", "ledger_verify", "rotate_keys"])
def test_a_command_on_an_empty_database_ends_with_a_sentence(command: str, tmp_path: Path) -> None:
    code, lines = told(*python(MANAGE, command), folder=tmp_path)
    assert (code, lines) == (trouble.SAID, [trouble.TABLES_MISSING])


def test_tables_that_postgresql_lacks_are_told() -> None:
    for text in ('relation "auth_user" does not exist', 'column "x.y" does not exist'):
        assert trouble.describe_command_error(ProgrammingError(text)) == trouble.TABLES_MISSING


def test_commands_that_write_refuse_a_newer_database(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "palimpsest.sqlite3")) as database:
        database.execute("CREATE TABLE django_migrations (id INTEGER, app, name, applied)")
        row = (1, "chats", "9999_later", "2030-01-01")
        database.execute("INSERT INTO django_migrations VALUES (?, ?, ?, ?)", row)
        database.commit()
    for command in sorted(versions.WRITING):
        code, lines = told(*python(MANAGE, command), folder=tmp_path)
        assert (code, lines) == (1, [versions.NEWER.format(names="chats.9999_later")])


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("LOCALHOST", True), ("127.0.0.2", True), ("0:0:0:0:0:0:0:1", True), ("::", False)],
)
def test_an_address_of_this_machine_alone_needs_no_tls(host: str, is_own: bool) -> None:
    assert addresses.is_loopback(host) == is_own


@pytest.mark.parametrize("name", ["127.0.0.1:80", "[a", "", "*", "a host", "http://localhost"])
def test_a_host_is_a_name_or_an_address(name: str) -> None:
    with pytest.raises(ArgumentTypeError, match="without a port"):
        addresses.parse_host(name)


def test_an_empty_variable_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = ArgumentParser()
    monkeypatch.setenv("PALIMPSEST_HOST", "")
    monkeypatch.setenv("PALIMPSEST_PORT", "")
    addresses.add_arguments(parser)
    assert vars(parser.parse_args([])) == {"host": "127.0.0.1", "port": 8420}
    monkeypatch.setenv("LOG_LEVEL", "")
    assert env.read_choice("LOG_LEVEL", logs.LEVELS, default="INFO") == "INFO"
    monkeypatch.setenv("LOG_LEVEL", "warning")
    assert env.read_choice("LOG_LEVEL", logs.LEVELS, default="INFO") == "WARNING"
    monkeypatch.setenv("TOOL_COMMANDS", "")
    assert env.read_commands("TOOL_COMMANDS") == {}


@pytest.mark.parametrize("line", ["mcp-files 'a", 'mcp-files "a', "mcp-files \\", "", "  ", "''"])
def test_a_command_that_cannot_be_run_is_named_at_the_start(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOL_COMMANDS", json.dumps({"clock": "mcp-clock", "files": line}))
    with pytest.raises(env.Misconfigured, match=r"The command 'files' in TOOL_COMMANDS needs"):
        env.read_commands("TOOL_COMMANDS")
    monkeypatch.setenv("PALIMPSEST_FILE_SCAN", line)
    if not line.strip():
        return
    with pytest.raises(env.Misconfigured, match="PALIMPSEST_FILE_SCAN needs"):
        env.read_command("PALIMPSEST_FILE_SCAN")


@pytest.mark.parametrize("line", ["", "clamav:host:3310", "clamscan --option 'a b'"])
def test_a_command_of_a_scanner(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_FILE_SCAN", line)
    assert env.read_command("PALIMPSEST_FILE_SCAN") == line


@pytest.mark.parametrize(
    ("said", "host"), [("[::1]", "::1"), ("::1", "::1"), ("Localhost", "Localhost")]
)
def test_an_address_may_have_the_brackets_of_a_url(
    said: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = ArgumentParser()
    monkeypatch.setenv("PALIMPSEST_HOST", said)
    addresses.add_arguments(parser)
    assert parser.parse_args([]).host == host
    assert parser.parse_args(["--host", said]).host == host
