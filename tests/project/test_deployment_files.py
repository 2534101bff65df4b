"""The systemd units and the Kubernetes base are valid, and have few permissions."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from chats.ground import queues
from tests.support.repository import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("palimpsest*"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
BASE = ROOT / "deploy" / "kubernetes"
KUBERNETES = ("1.31", "1.34")
OBJECTS: list[dict[str, Any]] = [
    each
    for path in sorted(BASE.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for each in yaml.safe_load_all(path.read_text("utf-8"))
]
PODS = {
    each["metadata"]["name"].removeprefix("palimpsest-"): each["spec"]["template"]["spec"]
    for each in OBJECTS
    if each["kind"] in {"Deployment", "Job"}
}
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
# Names of the services in the compose file.
SAME = {
    "setup": "setup",
    "web": "web",
    "replies": "worker",
    "background": "background",
    "beat": "beat",
}


def settings_of(unit: Path) -> list[tuple[str, str]]:
    """The settings of a unit; some occur more than once."""
    return re.findall(r"^([A-Za-z]+)=(.*)$", unit.read_text("utf-8"), re.MULTILINE)


def command_of(unit: Path) -> list[str]:
    """The command of a unit, as the container has it."""
    command = dict(settings_of(unit))["ExecStart"].replace("%%", "%")
    return shlex.split(command.replace("/opt/palimpsest/.venv/bin/", ""))


def plain(command: list[str]) -> list[str]:
    """A command without its priority, its address, and the form of an empty option."""
    text = " ".join(command).removeprefix("nice -n 10 ").replace("--quiet ", "")
    text = text.replace(" --host 0.0.0.0 --port 8420", "").replace("--pidfile ", "--pidfile=")
    return text.rstrip("= ").split()


@pytest.mark.parametrize("name", sorted(SAME))
def test_every_deployment_has_the_same_commands(name: str) -> None:
    expected = plain(COMPOSE[SAME[name]]["command"])
    unit = ROOT / "deploy" / "systemd" / f"palimpsest-{name}.service"
    assert plain(command_of(unit)) == expected
    (container,) = PODS[name]["containers"]
    assert plain(container["command"]) == expected


def test_every_queue_has_a_worker() -> None:
    taken = [word for unit in SERVICES for word in re.findall(r"-Q (\S+)", unit.read_text("utf-8"))]
    assert sorted(",".join(taken).split(",")) == sorted(queues.EVERY)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        # The programs must exist.
        text = unit.read_text("utf-8").replace("/opt/palimpsest", str(ROOT))
        (tmp_path / unit.name).write_text(text, "utf-8")
    paths = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_S30_units_have_no_permissions_to_spare(unit: Path) -> None:
    found = dict(settings_of(unit))
    assert (found["User"], found["ProtectSystem"], found["NoNewPrivileges"]) == (
        "palimpsest",
        "strict",
        "true",
    )
    assert (found["CapabilityBoundingSet"], found["UMask"]) == ("", "0077")


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize(
    "each", OBJECTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}"
)
def test_kubernetes_accepts_the_objects(each: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(each, version, strict=True)


def test_a_wrong_field_would_be_found() -> None:
    wrong = {**OBJECTS[0], "speck": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("name", sorted(PODS))
def test_S30_pods_have_no_permissions_to_spare(name: str) -> None:
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert name == "setup" or container["livenessProbe"]


def test_only_the_setup_connects_as_the_owner_of_the_tables() -> None:
    owners = [name for name, pod in PODS.items() if "owner_url" in str(pod)]
    assert owners == ["setup"]


def test_one_schedule_and_no_overlap() -> None:
    (beat,) = [each for each in OBJECTS if each["metadata"]["name"] == "palimpsest-beat"]
    assert (beat["spec"]["replicas"], beat["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_the_base_names_each_file_and_the_version_of_the_product() -> None:
    base = yaml.safe_load((BASE / "kustomization.yaml").read_text("utf-8"))
    files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(base["resources"]) == files
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'version = "{base["images"][0]["newTag"]}"' in pyproject
    assert {"Secret"}.isdisjoint(each["kind"] for each in OBJECTS)
