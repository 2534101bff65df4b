"""The map of a message in `chats/__init__.py` is the path that the calls take."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

import chats
from tests.support.repository import ROOT

ARCHITECTURE = ROOT / "docs" / "architecture.md"
# A line of the map: a file, the function that a message enters first, and its task.
LINE = re.compile(r"^ {4}((?:contextpolicy/)?[\w/]+\.py) +(\w+) ", re.MULTILINE)
PARTICIPANT = re.compile(r"^ +participant \w+ as (\S+\.py)$", re.MULTILINE)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# A message cannot do without these, wherever they are.
NEEDED = {"start_turn", "run_turn", "claim_turn", "compose_prompt", "compose_context", "listen"}
Place = tuple[str, str]


@dataclass(frozen=True)
class Module:
    """The definitions of a file, and where its imported names come from."""

    functions: dict[str, FUNCTIONS]
    classes: dict[str, ast.ClassDef]
    imports: dict[str, str]


@cache
def load_module(name: str) -> Module | None:
    """Return a module of the product by its dotted name."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    if not name.startswith(("chats.", "contextpolicy.")) or not path.exists():
        return None
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return Module(
        functions={node.name: node for node in body if isinstance(node, FUNCTIONS)},
        classes={node.name: node for node in body if isinstance(node, ast.ClassDef)},
        imports={
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        },
    )


@dataclass
class Walk:
    """Follows calls in the order of the code.

    A function that is passed as an argument counts as called, because a thread calls it. A method
    is found by its name among the classes that were named on the way.
    """

    # Module and name of each function, in the order in which they were entered.
    entered: list[Place] = field(default_factory=list)
    # The calling module, and the called function.
    calls: set[tuple[str, Place]] = field(default_factory=set)
    classes: dict[Place, ast.ClassDef] = field(default_factory=dict)

    def enter(self, module: str, name: str, *, by: str) -> None:
        """Follow a function, or remember a class."""
        found = load_module(module)
        if found is None:
            return
        if name in found.classes:
            self.classes[module, name] = found.classes[name]
        if name in found.functions:
            self.follow(module, found.functions[name], by=by)

    def follow(self, module: str, function: FUNCTIONS, *, by: str) -> None:
        """Follow the names in a function, from its first line to its last."""
        place = (module, function.name)
        self.calls.add((by, place))
        if place in self.entered:
            return
        self.entered.append(place)
        for node in iter_in_order(function):
            if isinstance(node, ast.Name):
                self.name(module, node.id)
            elif isinstance(node, ast.Attribute):
                self.attribute(module, node)

    def name(self, module: str, name: str) -> None:
        """Follow an imported name or one of the same file."""
        found = load_module(module)
        assert found is not None
        source, _, imported = found.imports.get(name, f"{module}.{name}").rpartition(".")
        self.enter(source, imported, by=module)

    def attribute(self, module: str, node: ast.Attribute) -> None:
        """Follow `module.function`, the name of a task, or a method."""
        found = load_module(module)
        assert found is not None
        if isinstance(node.value, ast.Name) and node.value.id in found.imports:
            source = found.imports[node.value.id]
            # Other tasks run in the background.
            if source == "chats.ground.queue" and tasks().get(node.attr) in NEEDED:
                self.enter("chats.tasks", tasks()[node.attr], by=module)
            self.enter(source, node.attr, by=module)
            return
        for (home, _), kind in list(self.classes.items()):
            for method in kind.body:
                if isinstance(method, FUNCTIONS) and method.name == node.attr:
                    self.follow(home, method, by=module)


def iter_in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body in the order of their evaluation."""
    children = node.body if isinstance(node, FUNCTIONS) else ast.iter_child_nodes(node)
    for child in children:
        yield from iter_in_order(child)
        yield child


@cache
def tasks() -> dict[str, str]:
    """Return the functions of `chats.tasks` by the constant with the name of their task."""
    found = load_module("chats.tasks")
    assert found is not None
    return {
        match[1]: function.name
        for function in found.functions.values()
        for decorator in function.decorator_list
        if (match := re.search(r"name=queue\.(\w+)", ast.unparse(decorator)))
    }


def module_of(file: str) -> str:
    """Return the dotted name of a file of the map."""
    name = file.removesuffix(".py").replace("/", ".")
    return name if name.startswith("contextpolicy.") else f"chats.{name}"


def parse_map(text: str) -> list[Place]:
    """Return the files of a map with their functions, in its order."""
    return LINE.findall(text)


@cache
def walk_from(file: str, function: str) -> Walk:
    """Return the walk from a view that takes a message."""
    walk = Walk()
    path = ROOT / "chats" / file
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, FUNCTIONS) and node.name == function:
            walk.follow(module_of(file), node, by="")
    return walk


def find_errors(lines: list[Place], walk: Walk) -> list[str]:
    """Return the errors of a map that starts at the view of the walk."""
    found = [f"{name} is missing" for name in sorted(NEEDED - {name for _, name in lines})]
    before: list[str] = []
    last = -1
    for file, name in lines:
        place = (module_of(file), name)
        if place not in walk.entered:
            found.append(f"{file}: no call leads to {name}")
            continue
        if walk.entered.index(place) < last:
            found.append(f"{file}: entered before the file above it")
        if before and not any((caller, place) in walk.calls for caller in before):
            found.append(f"{file}: {name} is called by a file that the map leaves out")
        last = walk.entered.index(place)
        before.append(place[0])
    return found


LINES = parse_map(chats.__doc__ or "")
DOORS, REST = LINES[:2], LINES[2:]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door[0])
def test_the_map_is_the_path_that_the_calls_take(door: Place) -> None:
    assert find_errors([door, *REST], walk_from(*door)) == []


def test_the_diagram_of_the_architecture_shows_the_same_files() -> None:
    drawn = PARTICIPANT.findall(ARCHITECTURE.read_text(encoding="utf-8"))
    assert drawn == [file for file, _ in [DOORS[0], *REST]]


@pytest.mark.parametrize("place", range(1, len(REST)))
def test_a_map_in_another_order_is_wrong(place: int) -> None:
    swapped = [*REST]
    swapped[place - 1], swapped[place] = swapped[place], swapped[place - 1]
    assert find_errors([DOORS[0], *swapped], walk_from(*DOORS[0]))


@pytest.mark.parametrize("file", ["turns/worker/runtime.py", "turns/opening.py", "turns/lease.py"])
def test_a_map_without_a_file_is_wrong(file: str) -> None:
    shorter = [line for line in REST if line[0] != file]
    assert find_errors([DOORS[0], *shorter], walk_from(*DOORS[0]))
