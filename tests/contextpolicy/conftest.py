"""Shared fixtures of the policy tests."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from pytest_django import Settings

from contextpolicy import plugins
from contextpolicy.models import ContextPolicy, PolicyAssignment, PolicyVersion
from contextpolicy.roles import POLICY_ADMIN
from tests.contextpolicy.people import person
from tests.contextpolicy.strategy_package import install
from tests.support.policy_assignments import NOW, Lay


@pytest.fixture(autouse=True)
def static_root(settings: Settings, empty_folder: Path) -> None:
    """An existing folder; without it the static files' middleware warns."""
    settings.STATIC_ROOT = empty_folder


@pytest.fixture
def support(db: None) -> Group:
    """A group of people that is not a role."""
    return Group.objects.create(name="Support staff")


@pytest.fixture
def lay(db: None) -> Lay:
    """Insert rows directly into the tables: the tests of resolution start from stored values."""

    def write(
        slug: str,
        values: Mapping[str, Any],
        *,
        locks: tuple[str, ...] = (),
        version: int = 1,
        **target: Any,
    ) -> ContextPolicy:
        policy = ContextPolicy.objects.create(slug=slug, name=slug.title())
        policy.current = PolicyVersion.objects.create(
            policy=policy, number=version, values=dict(values), locks=list(locks), created_at=NOW
        )
        policy.save()
        PolicyAssignment.objects.create(policy=policy, **target)
        return policy

    return write


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed by pip into a separate folder."""
    return install(tmp_path_factory)


@pytest.fixture
def is_installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the example package to this process's path, as in an instance that installed it."""
    monkeypatch.syspath_prepend(str(package))
    importlib.invalidate_caches()
    plugins.load_strategy_plugins.cache_clear()
    yield
    sys.modules.pop("example_strategies", None)
    plugins.load_strategy_plugins.cache_clear()


@pytest.fixture
def needs_two_persons(settings: Settings) -> None:
    """Enable two-person approval."""
    settings.TWO_PERSONS = True


@pytest.fixture
def ines(db: None) -> User:
    """Writes policies."""
    return person("ines", POLICY_ADMIN)


@pytest.fixture
def ivan(db: None) -> User:
    """May change policies, too."""
    return person("ivan", POLICY_ADMIN)
