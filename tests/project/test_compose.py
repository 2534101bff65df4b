"""The compose file and the Dockerfile, checked as text without an engine."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.conf import settings

from chats.ground import queues
from tests.support.repository import ROOT

SCHEMA = "compose/config/compose_spec.json"
OURS = ("setup", "web", "worker", "background", "beat")


@pytest.fixture(scope="module")
def compose() -> Any:
    """The file as data."""
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


def test_it_is_a_valid_compose_file(compose: Any) -> None:
    wheels = sorted((ROOT / ".venv" / "compose-schema").glob("docker_compose-*.whl"))
    assert wheels, "make .venv/.for-testing fetches the schema"
    with zipfile.ZipFile(wheels[0]) as wheel:
        schema = json.loads(wheel.read(SCHEMA))
    # The schema is older than an "x-" key at the top, which the specification allows.
    checked = {key: value for key, value in compose.items() if not key.startswith("x-")}
    # It is also older than the long form of "env_file", which allows a missing file.
    services = {
        name: {key: value for key, value in service.items() if key != "env_file"}
        for name, service in checked["services"].items()
    }
    checked |= {"services": services}
    jsonschema.Draft7Validator(schema).validate(checked)


@pytest.mark.parametrize("name", OURS)
def test_S30_our_containers_have_no_rights_to_spare(compose: Any, name: str) -> None:
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize("name", ["web", "worker", "background", "beat", "postgres", "redis"])
def test_every_service_that_stays_has_a_health_check(compose: Any, name: str) -> None:
    assert compose["services"][name]["healthcheck"]["test"]


def test_only_setup_connects_as_the_owner_of_the_tables(compose: Any) -> None:
    for name in ("web", "worker", "background", "beat"):
        service = compose["services"][name]
        assert "owner_url" not in service["secrets"]
        assert service["environment"]["DATABASE_URL_FILE"] == "/run/secrets/app_url"
    assert "owner_url" in compose["services"]["setup"]["secrets"]


def test_every_queue_has_a_worker_and_background_work_stands_back(compose: Any) -> None:
    services = compose["services"]
    taken = {name: option(services[name]["command"], "-Q") for name in ("worker", "background")}
    assert taken == {"worker": queues.REPLIES, "background": ",".join(queues.BACKGROUND)}
    served = {name for names in taken.values() for name in names.split(",")}
    assert served == {declared.name for declared in settings.CELERY_TASK_QUEUES}
    assert services["background"]["command"][:3] == ["nice", "-n", "10"]


def option(command: list[str], name: str) -> str:
    """The value of a command's option."""
    return command[command.index(name) + 1]


def test_redis_never_evicts(compose: Any) -> None:
    assert "noeviction" in compose["services"]["redis"]["command"]


def test_redis_keeps_nothing_on_disk(compose: Any) -> None:
    service = compose["services"]["redis"]
    assert option(service["command"], "--appendonly") == "no"
    assert option(service["command"], "--save") == ""
    assert service["tmpfs"] == ["/data:size=16m"]
    assert "volumes" not in service
    assert "redis-data" not in compose["volumes"]


def test_no_secret_stands_in_the_file(compose: Any) -> None:
    for secret in compose["secrets"].values():
        assert secret["file"].startswith("deploy/secrets/")


def test_S30_the_image_runs_as_a_user_without_rights() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert "USER palimpsest" in lines
    assert not any(line.startswith(("ADD", "COPY . ")) for line in lines)


@pytest.mark.parametrize("name", OURS)
def test_our_containers_get_all_settings_and_are_bounded(compose: Any, name: str) -> None:
    service = compose["services"][name]
    assert service["init"] is True
    assert service["env_file"] == [{"path": ".env", "required": False}]
    assert "host.docker.internal:host-gateway" in service["extra_hosts"]
    assert service["mem_limit"]
    assert service["pids_limit"] > 300
    assert all("size=" in mount for mount in service["tmpfs"])
    # The file of an import is larger than a container's memory.
    assert service["environment"]["TMPDIR"].startswith("/data/")


def test_one_service_builds_the_image_of_all(compose: Any) -> None:
    services = {name: compose["services"][name] for name in OURS}
    assert [name for name, service in services.items() if "build" in service] == ["setup"]
    assert len({service["image"] for service in services.values()}) == 1
    assert {service["pull_policy"] for service in services.values()} == {"never"}


def test_every_log_is_rotated(compose: Any) -> None:
    for service in compose["services"].values():
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}


def test_health_checks_can_fail(compose: Any) -> None:
    services = compose["services"]
    assert "-d replies@$$(hostname)" in services["worker"]["healthcheck"]["test"][1]
    assert "-d background@$$(hostname)" in services["background"]["healthcheck"]["test"][1]
    assert "st_mtime" in services["beat"]["healthcheck"]["test"][-1]
    # The server that only creates the database listens on the socket.
    assert "pg_isready -h 127.0.0.1 " in services["postgres"]["healthcheck"]["test"][1]


@pytest.mark.parametrize(("age", "code"), [(0, 0), (61, 1), (None, 1)])
def test_the_check_of_the_schedule_looks_at_its_file(
    compose: Any, age: int | None, code: int, tmp_path: Path
) -> None:
    program = compose["services"]["beat"]["healthcheck"]["test"][-1]
    file = tmp_path / "schedule"
    assert "'/data/schedule'" in program
    if age is not None:
        file.touch()
        os.utime(file, (time.time() - age,) * 2)
    program = program.replace("/data/schedule", str(file))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == code


def test_the_image_is_readable_whatever_the_umask_of_the_checkout() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    rest = text.partition("RUN chmod -R a+rX .")[2]
    assert "COPY --from=build /app /app" in rest
    assert not re.search(r"^COPY (?!--from=build)", rest, re.MULTILINE)


def test_only_what_the_image_has_reaches_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    assert not kept & {"deploy", "data", ".env", "tests"}
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert {name for name in names if not name.startswith("constraints")} == kept - {
        "constraints*.txt"
    }


def test_the_secrets_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    folder.mkdir()
    script = shutil.copy(ROOT / "deploy" / "make-secrets.sh", folder)
    role = folder / "app-role.sh"
    role.touch(mode=0o700)
    for _ in range(2):
        subprocess.run([str(shutil.which("sh")), script], check=True)  # our own command
    secrets = folder / "secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {path.name for path in secrets.iterdir()} >= {"secret_key", "owner_url", "app_url"}
    # The container of PostgreSQL has to read it, whatever the umask of the checkout.
    assert stat.S_IMODE(role.stat().st_mode) == 0o755


def test_the_smoke_test_is_sound_and_its_client_knows_each_step() -> None:
    script = ROOT / "scripts" / "compose_smoke.sh"
    subprocess.run([str(shutil.which("sh")), "-n", str(script)], check=True)  # our own command
    steps = set(re.findall(r"^client ([a-z-]+)", script.read_text(encoding="utf-8"), re.MULTILINE))
    client = (ROOT / "scripts" / "compose_client.py").read_text(encoding="utf-8")
    assert steps == set(re.findall(r'step == "([a-z-]+)"', client))
