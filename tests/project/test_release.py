"""One version, stated in `pyproject.toml`, is shown everywhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from project import probes
from project.release import get_product_version
from tests.support.api_schema import describe_api
from tests.support.repository import ROOT

VERSION = re.search(
    r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
)


@pytest.fixture
def version() -> str:
    """The version in `pyproject.toml`, read without the product."""
    assert VERSION is not None
    return VERSION[1]


def test_the_version_is_that_of_the_project_file(version: str) -> None:
    assert get_product_version() == version
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_the_newest_release_of_the_changelog_is_this_version(version: str) -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.findall(r"^## \[?(\d+\.\d+\.\d+)\]? - (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    assert releases[0][0] == version


@pytest.mark.django_db
def test_readyz_shows_the_version(
    client: Client, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "get_broker_eviction", lambda: probes.KEEPS_ALL)
    monkeypatch.setattr(probes, "list_broker_warnings", list)
    assert client.get("/readyz").json()["version"] == version


@pytest.mark.django_db
def test_settings_show_the_version(client: Client, version: str, django_user_model: type) -> None:
    user = django_user_model.objects.create_user("alice")  # type: ignore[attr-defined]
    client.force_login(user)
    page = client.get("/settings/").content.decode()
    assert f"Palimpsest {version}" in page.partition('id="about-title"')[2]


def test_the_schema_shows_the_version(version: str) -> None:
    # `test_schema_file.py` compares the schema with its file.
    assert describe_api()["info"]["version"] == version


def test_the_command_prints_the_version_and_creates_no_data_folder(
    version: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "version"],
        env={"PALIMPSEST_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"Palimpsest {version}\n"
    assert not (tmp_path / "data").exists()
