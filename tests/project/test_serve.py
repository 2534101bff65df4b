"""`manage.py serve` before it starts processes: its imports and its errors."""

import json
import os
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command, load_command_class

from project import addresses, data_folder, instance
from tests.faults.programs import MANAGE, python, run

# The launcher's modules as `manage.py serve` loads them.
LOADED = """
import json, runpy, sys
manage = sys.argv[1]
sys.argv = [manage, "serve", "--port", "0", "--host", "192.0.2.1"]
try:
    runpy.run_path(manage, run_name="__main__")
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]))
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a process of the product."""
    return {"PATH": os.environ["PATH"], "PALIMPSEST_DATA": str(folder), **more}


def test_the_launcher_loads_neither_django_nor_celery(tmp_path: Path) -> None:
    said = run(python("-c", LOADED, MANAGE), env=environment(tmp_path))
    code, modules = json.loads(said)
    assert code == 1
    assert "project.launcher" in modules
    assert not {"django", "celery", "kombu", "asgiref"} & set(modules)


def test_other_machines_are_refused_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(addresses.NotLaunched, match="passwords in the clear"):
        addresses.refuse_open_network("0.0.0.0")  # noqa: S104  # nothing listens
    addresses.refuse_open_network("::1")
    monkeypatch.setattr(instance, "TRUSTED_PROXY", True)
    addresses.refuse_open_network("0.0.0.0")  # noqa: S104  # nothing listens


def test_a_setting_that_cannot_be_used_is_named_in_one_line(tmp_path: Path) -> None:
    told = environment(tmp_path, WORKER_DRAIN_SECONDS="soon")
    with pytest.raises(RuntimeError) as refusal:
        run(python(MANAGE, "serve"), env=told)
    assert "ended with 1:" in str(refusal.value)
    assert str(refusal.value).splitlines()[1:] == [
        "WORKER_DRAIN_SECONDS must be a number of seconds above 0, not 'soon'."
    ]


def test_django_knows_the_command_and_its_options() -> None:
    parser = load_command_class("project", "serve").create_parser(sys.argv[0], "serve")
    assert {"--host", "--port"} <= set(parser.format_help().split())
    with pytest.raises(CommandError, match="passwords in the clear"):
        call_command("serve", host="192.0.2.1")


def test_a_new_encryption_key_is_one() -> None:
    crypt = Fernet(data_folder.generate_fernet_key())
    assert crypt.decrypt(crypt.encrypt(b"words")) == b"words"
