"""The name of a class or public function has one meaning in the whole product."""

import ast
from collections import defaultdict

from tests.support.product_sources import read_product_sources

# Django's names; messages, as a row and as the engine's value; and functions with one purpose in
# several places: a hook of the sweep, entry points, and helpers of the admin and of the pages.
SAME_MEANING = {
    "Command",
    "Message",
    "enqueue_due",
    "main",
    "get_request_user",
    "is_recently_confirmed",
    "download_request_file",
}
# A standalone program that users get as a file, and tasks named after the function that they call.
APART = {"chats/checkpoints/verify_ledger.py", "chats/tasks.py"}
PUBLIC = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_no_two_classes_or_functions_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for source in read_product_sources():
        for node in source.tree.body:
            if source.path not in APART and isinstance(node, PUBLIC) and node.name[0] != "_":
                places[node.name].append(source.path)
    assert len(places) > 3000
    assert {
        name: found for name, found in places.items() if len(found) > 1 and name not in SAME_MEANING
    } == {}
