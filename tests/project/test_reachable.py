"""Every module is imported from an entry point of the product, or is listed with a reason."""

import ast
import re
import tomllib
from functools import cache

import grimp
from django.apps import apps

from tests.requirements_plugin import LANDED, known
from tests.support.repository import ROOT

PACKAGES = ("project", "chats", "contextpolicy", "replay", "speed")
# Django looks for `.base` in the database engine of the settings, and for a language's formats.
ENTRY_POINTS = {
    "project.asgi",
    "project.celery",
    "project.formats.en.formats",
    "project.formats.zh_Hans.formats",
    "project.sqlite.base",
    # Migration 0028 of `chats` imports it.
    "chats.ground.seals",
}
# Modules of each app that Django and Celery look for by name.
BY_NAME = {"admin", "apps", "models", "tasks"}


@cache
def graph() -> grimp.ImportGraph:
    """Return the imports of each module, including those inside functions, without migrations."""
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
    """Return the module of a dotted path to a submodule or to a member."""
    module, _, part = text.rpartition(".")
    if "." in text and text in graph().modules:
        return text
    if "." in module and module in graph().modules and part.isidentifier():
        defined = re.search(rf"^((async )?def |class )?{part}\b", code_of(module), re.MULTILINE)
        return module if defined else None
    return None


def code_of(module: str) -> str:
    """Return the code that runs when a module is imported."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def reached(beginnings: set[str]) -> set[str]:
    """Return all modules that are imported with these, including their packages."""
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
    """Return the modules that wait for a requirement, with the requirement."""
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
