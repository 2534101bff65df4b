"""Docstrings of public functions name the exceptions that are raised."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.product_sources import read_product_sources

Function = ast.FunctionDef | ast.AsyncFunctionDef


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body without those of functions and classes inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield child
            yield from own_nodes(child)


def raised(function: Function) -> set[str]:
    """Return the names of the exceptions that a function raises and does not catch itself."""
    nodes = list(own_nodes(function))
    caught = {
        inner
        for node in nodes
        if isinstance(node, ast.Try) and any(catches_all(handler) for handler in node.handlers)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = set()
    for node in nodes:
        if isinstance(node, ast.Raise) and node.exc is not None and node not in caught:
            cause = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            found.add(ast.unparse(cause).split(".")[-1])
    return found


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Return True if a handler catches every exception and raises none again."""
    everything = handler.type is None or ast.unparse(handler.type) == "Exception"
    return everything and not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def public_functions(node: ast.AST) -> Iterator[Function]:
    """Yield the functions of a module and the methods of its classes that others may call."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef) and child.name.startswith("_"):
            continue
        if isinstance(child, Function):
            yield child
        elif isinstance(child, ast.ClassDef):
            yield from public_functions(child)


@cache
def own_exceptions() -> dict[str, set[str]]:
    """Return the product's exception classes by name, each with its bases in the product."""
    bases = {
        node.name: {ast.unparse(base).split(".")[-1] for base in node.bases}
        for source in read_product_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {name for name, kind in vars(builtins).items() if is_exception(kind)}
    found: dict[str, set[str]] = {}
    while more := {
        name: above & found.keys()
        for name, above in bases.items()
        if name not in found and above & (known | found.keys())
    }:
        found |= more
    return found


def is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def unnamed(function: Function) -> list[str]:
    """Return the product's exceptions that a function raises and its docstring does not name."""
    own = own_exceptions()
    named = set(re.findall(r"\w+", ast.get_docstring(function) or ""))
    return sorted(
        name for name in raised(function) if name in own and not named & {name, *own[name]}
    )


def test_public_functions_name_the_exceptions_they_raise() -> None:
    bad = [
        f"{source.path}:{function.lineno} {function.name} raises {', '.join(names)} without a word"
        for source in read_product_sources()
        for function in public_functions(source.tree)
        if (names := unnamed(function))
    ]

    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("docstring", "missing"),
    [
        ("Do it.", ["NotFound"]),
        ("Do it. Raises `NotFound`.", []),
        ("Do it. Raises `Refusal`.", []),
    ],
)
def test_an_exception_that_is_raised_has_to_be_named(docstring: str, missing: list[str]) -> None:
    code = f'def f():\n    """{docstring}"""\n    if True:\n        raise NotFound(1) from None'

    assert unnamed(next(public_functions(ast.parse(code)))) == missing
