"""Every module is reached from one of the product's entry points, or is listed with its reason."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import grimp
from django.apps import apps

from tests.requirements_plugin import LANDED, known

ROOT = Path(__file__).parents[2]
PACKAGES = ("project", "chats", "contextpolicy", "replay", "speed")
# Django looks for `.base` in the database engine that settings name.
ENTRY_POINTS = {"project.asgi", "project.celery", "project.sqlite.base"}
# Modules of each app that Django and Celery look for by name.
BY_NAME = {"admin", "apps", "models", "tasks"}


@cache
def graph() -> grimp.ImportGraph:
    """Return who imports whom, inside functions too; migrations are apart."""
    found = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    for module in found.modules:
        if "migrations" in module.split("."):
            found.remove_module(module)
    return found


def entry_points() -> set[str]:
    """Return the modules with which a process of the product begins."""
    installed = {app.name for app in apps.get_app_configs()} & set(PACKAGES)
    found = set(ENTRY_POINTS)
    found |= {f"{app}.{name}" for app in installed for name in BY_NAME} & graph().modules
    return found | {
        module
        for app in installed
        for module in graph().modules
        if module.startswith(f"{app}.management.commands.")
    }


def named_in(module: str) -> set[str]:
    """Return the modules that a module names in a string, as settings and lazy imports do."""
    nodes = ast.walk(ast.parse(code_of(module)))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {found for text in texts if isinstance(text, str) and (found := named(text))}


def named(text: str) -> str | None:
    """Return the module of a dotted path: of a module below a package, or of a part of one."""
    module, _, part = text.rpartition(".")
    if "." in text and text in graph().modules:
        return text
    if "." in module and module in graph().modules and part.isidentifier():
        defined = re.search(rf"^((async )?def |class )?{part}\b", code_of(module), re.MULTILINE)
        return module if defined else None
    return None


def code_of(module: str) -> str:
    """Return what importing a module runs."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def reached(beginnings: set[str]) -> set[str]:
    """Return all that comes along when these are imported; with a module come its packages."""
    found: set[str] = set()
    waiting = set(beginnings)
    while waiting:
        module = waiting.pop()
        found.add(module)
        waiting |= graph().find_modules_directly_imported_by(module) | named_in(module)
        if "." in module:
            waiting.add(module.rpartition(".")[0])
        waiting -= found
    return found


def listed() -> dict[str, str]:
    """Return the modules that wait for a requirement, and which one."""
    waiting: dict[str, str] = tomllib.loads(LANDED.read_text(encoding="utf-8"))["unreached"]
    return waiting


def test_every_module_is_reached_or_waits_for_a_requirement() -> None:
    assert graph().modules - reached(entry_points()) == set(listed())


def test_what_a_module_waits_for_is_open() -> None:
    every, landed = known()
    assert set(listed().values()) <= set(every) - landed


def test_a_name_in_settings_reaches_a_module_and_a_word_does_not() -> None:
    assert named("project.middleware.RequestIdMiddleware") == "project.middleware"
    assert named("project.checks") == "project.checks"
    assert named("project.middleware.Nothing") is None
    assert named("chats.run_turn") is None
    assert named("chats") is None


def test_without_its_entry_point_a_module_is_missed() -> None:
    rest = entry_points() - {"replay.management.commands.replay"}
    assert "replay.matrix" in reached(entry_points()) - reached(rest)
