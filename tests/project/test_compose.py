"""The compose file and the Dockerfile, checked as text: no engine is needed."""

import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.conf import settings

from chats.ground import queues

ROOT = Path(__file__).resolve().parents[2]
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
    """What stands behind an option of a command."""
    return command[command.index(name) + 1]


def test_redis_never_evicts(compose: Any) -> None:
    assert "noeviction" in compose["services"]["redis"]["command"]


def test_redis_keeps_nothing_on_disk(compose: Any) -> None:
    service = compose["services"]["redis"]
    assert option(service["command"], "--appendonly") == "no"
    assert option(service["command"], "--save") == ""
    assert service["tmpfs"] == ["/data"]
    assert "volumes" not in service
    assert "redis-data" not in compose["volumes"]


def test_no_secret_stands_in_the_file(compose: Any) -> None:
    for secret in compose["secrets"].values():
        assert secret["file"].startswith("deploy/secrets/")


def test_S30_the_image_runs_as_a_user_without_rights() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert "USER palimpsest" in lines
    assert not any(line.startswith(("ADD", "COPY . ")) for line in lines)
