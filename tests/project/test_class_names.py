"""A class name has one meaning in the whole product."""

import ast
from collections import defaultdict

from tests.project.test_docstrings import product

# Exceptions: Django's names; messages, as a row and as the engine's value; and a standalone program
# that users get as a file.
OFTEN = {"Command", "Message"}
APART = "chats/checkpoints/verify_ledger.py"


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for source in product():
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and source.path != APART:
                places[node.name].append(source.path)
    assert {
        name: found for name, found in places.items() if len(found) > 1 and name not in OFTEN
    } == {}
