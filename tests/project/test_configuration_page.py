"""`docs/configuration.md` lists every setting that the code reads, with its default."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "configuration.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
# The settings that people change, without old names and internal variables.
PUBLIC = set(re.findall(r"^\| `([A-Z0-9_]+)`", PAGE.partition("## Renamed")[0], re.MULTILINE))
NAME = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]")
READERS = {
    "read_string",
    "read_bool",
    "read_choice",
    "read_positive_int",
    "read_days",
    "read_hours",
    "read_percentage",
    "read_seconds",
    "read_list",
    "read_command",
    "read_commands",
    "read_origins",
    "read_networks",
    "read_proxy_count",
    "read_public_url",
    "read_https_url",
    "read_encryption_keys",
    "get",
}
# Read here, but set by the operating system, Django or a library.
FOREIGN = {"DJANGO_SETTINGS_MODULE"}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Each call of a reader whose first argument is the name of a variable."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func
        reader = function.attr if isinstance(function, ast.Attribute) else ""
        reader = function.id if isinstance(function, ast.Name) else reader
        first = node.args[0]
        if reader == "get" and "environ" not in ast.unparse(function):
            continue
        name = str(first.value) if isinstance(first, ast.Constant) else ""
        if reader in READERS and NAME.fullmatch(name):
            yield name, node


def settings_read() -> dict[str, ast.Call]:
    """Each variable that the modules of `project` read, with one of its calls."""
    found: dict[str, ast.Call] = {}
    for file in sorted((ROOT / "project").glob("**/*.py")):
        for name, call in calls(ast.parse(file.read_text("utf-8"))):
            if name not in FOREIGN:
                found.setdefault(name, call)
    return found


READ = settings_read()


def number_of(call: ast.Call) -> float | None:
    """The default of a call, if it is a number."""
    second = call.args[1] if len(call.args) > 1 else None
    if second is None or any(not isinstance(n, SIMPLE) for n in ast.walk(second)):
        return None
    value = eval(ast.unparse(second))  # noqa: S307  # numbers of our own settings
    return float(value) if isinstance(value, int | float) else None


SIMPLE = (ast.Constant, ast.BinOp, ast.Mult, ast.operator)
NUMBERS = {
    name: value
    for name, call in READ.items()
    if name in PUBLIC and (value := number_of(call)) is not None
}


def test_settings_are_found_in_the_code() -> None:
    assert len(READ) > 80
    assert len(NUMBERS) > 50


def test_each_setting_of_the_code_has_a_row() -> None:
    assert sorted(set(READ) - set(ROWS)) == []


def test_each_row_is_a_setting() -> None:
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    renamed = PAGE.partition("## Renamed settings")[2].partition("##")[0]
    unknown = [
        name
        for name in ROWS
        if name not in READ and f"${{{name}" not in compose and f"| `{name}`" not in renamed
    ]
    assert unknown == []


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_the_default_is_that_of_the_code(name: str) -> None:
    assert float(ROWS[name].strip(" `")) == NUMBERS[name]


def test_each_flag_states_its_default() -> None:
    flags = {
        name: any(ast.unparse(word) == "default=True" for word in call.keywords)
        for name, call in READ.items()
        if name in PUBLIC and ast.unparse(call.func).endswith("read_bool")
    }
    assert len(flags) > 6
    stated = {name: ROWS[name].strip(" `") for name in flags}
    assert stated == {name: "1" if is_on else "0" for name, is_on in flags.items()}
